"""Panels in a row, each a piece of a scene turned so that the planned road user drives up."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from waycode.plotting.map_layers import draw_map, draw_route
from waycode.plotting.scene_picture import prepare_axes
from waycode.plotting.signal_layers import draw_signals
from waycode.plotting.style import Style
from waycode.plotting.track_layers import draw_tracks
from waycode.scene import Scene, TrackType

PANEL_IN, GAP_IN, MARGIN_IN = 3.3, 0.14, 0.2  # width of a panel, between panels, around all
TITLE_IN, CAPTION_IN, LEGEND_IN = 0.5, 0.47, 0.36
MOST_RATIO = 1.5  # height to width: ways are longer than they are wide, but a picture has to fit on a screen
AROUND_M, LEAST_WIDTH_M = 7.0, 30.0
# A pale road, so that the ways on it are what one sees.
PLAN_STYLE = Style(
    asphalt="#d6d9de",
    bike_lane="#e2dcd3",
    road_edge="#a4a9b2",
    tracks=dict.fromkeys(TrackType, "#949ba7"),
)


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A rectangle of the scene frame."""

    centre_m: tuple[float, float]
    width_m: float
    height_m: float

    @staticmethod
    def around(points_m: Float[np.ndarray, "P 2"]) -> "Frame":
        """The points and some room around them; never wider than high, nor much higher than wide."""
        low, high = points_m.min(axis=0), points_m.max(axis=0)
        x, y = (low + high) / 2
        width, height = np.maximum(high - low + 2 * AROUND_M, LEAST_WIDTH_M)
        return Frame(centre_m=(float(x), float(y)), width_m=float(width), height_m=float(height)).with_ratio()

    @property
    def ratio(self) -> float:
        return self.height_m / self.width_m

    def with_ratio(self, ratio: float | None = None) -> "Frame":
        """The same place with more room at two sides, so that height to width is as given, or within bounds."""
        ratio = min(max(self.ratio, 1.0), MOST_RATIO) if ratio is None else ratio
        return replace(
            self, width_m=max(self.width_m, self.height_m / ratio), height_m=max(self.height_m, self.width_m * ratio)
        )

    def scaled(self, factor: float) -> "Frame":
        return replace(self, width_m=factor * self.width_m, height_m=factor * self.height_m)

    def apply(self, axes: Axes) -> None:
        """Makes the axes show this rectangle; the layers read from the axes what they show."""
        (x, y), half_width, half_height = self.centre_m, self.width_m / 2, self.height_m / 2
        axes.set_xlim(x - half_width, x + half_width)
        axes.set_ylim(y - half_height, y + half_height)
        axes.set_aspect("equal")


def new_panels(count: int, *, ratio: float, title: str, style: Style) -> list[Axes]:
    """Axes in a row of a new figure, with room for the title, captions and the legend."""
    panel_height = PANEL_IN * ratio
    width = 2 * MARGIN_IN + count * PANEL_IN + (count - 1) * GAP_IN
    height = LEGEND_IN + panel_height + CAPTION_IN + (TITLE_IN if title else MARGIN_IN)
    figure = Figure(figsize=(width, height), facecolor=style.paper)
    FigureCanvasAgg(figure)
    figure.text(
        MARGIN_IN / width, 1 - MARGIN_IN / height, title, fontsize=14, fontweight="bold", color=style.ink, va="top"
    )
    lefts = [MARGIN_IN + index * (PANEL_IN + GAP_IN) for index in range(count)]
    return [
        figure.add_axes((left / width, LEGEND_IN / height, PANEL_IN / width, panel_height / height)) for left in lefts
    ]


def draw_ground(axes: Axes, scene: Scene, frame: Frame, *, agent: int, route: bool, style: Style) -> None:
    """The map, the lights and the road users as they are now: all alike, but the agent in a colour of its own."""
    prepare_axes(axes, style)
    frame.apply(axes)
    draw_map(axes, scene, style=style)
    if route:
        draw_route(axes, scene, style=style)
    draw_signals(axes, scene, style=style)
    tracks = replace(scene.tracks, to_predict=np.zeros(0, np.int32), ego_index=agent)
    draw_tracks(axes, replace(scene, tracks=tracks), trails=False, style=style)


def draw_caption(axes: Axes, caption: str, detail: str, *, style: Style) -> None:
    """Two lines above the panel: what it shows in bold, and a detail."""
    place: dict[str, Any] = {
        "xy": (0, 1), "xycoords": "axes fraction", "textcoords": "offset points", "va": "bottom", "clip_on": False,
    }  # fmt: skip
    axes.annotate(caption, xytext=(0, 18), fontsize=12, fontweight="bold", color=style.ink, **place)
    axes.annotate(detail, xytext=(0, 4), fontsize=10, color=style.faint_ink, **place)


def draw_row_legend(axes: Axes, entries: Sequence[tuple[str, Any]], *, style: Style) -> None:
    """What the colours mean, in a row under the panels, from the left edge of these axes on."""
    axes.legend(
        handles=[handle for _, handle in entries], labels=[name for name, _ in entries], loc="upper left",
        bbox_to_anchor=(-0.012, -0.07 / PANEL_IN), ncols=len(entries), frameon=False, fontsize=10.5,
        labelcolor=style.ink, handlelength=1.6, columnspacing=1.8, handletextpad=0.6, borderaxespad=0.0,
    )  # fmt: skip


def save_figure(axes: Axes, path: Path, *, dots_per_inch: int) -> Path:
    """Writes the figure that the axes belong to."""
    figure = axes.get_figure(root=True)
    assert figure is not None  # noqa: S101 (axes always belong to a figure)
    figure.savefig(path, dpi=dots_per_inch)
    return path
