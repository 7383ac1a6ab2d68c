"""Charts: the common look of a report's charts, and the speed chart inside a panel."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from waycode.plotting.shapes import Polyline
from waycode.plotting.style import Layer, Style

_SPEED_WIDTH, _SPEED_HEIGHT, _SPEED_MARGIN = 0.46, 0.3, 0.012  # fractions of the panel


def finish_chart(axes: Axes, title: str, *, along: str, up: str, style: Style) -> None:
    """Sets the title, axis labels (`along` x, `up` y), colours and grid; y begins at 0. Adds no legend."""
    axes.set_facecolor(style.paper)
    axes.set_title(title, loc="left", fontsize=11, color=style.ink)
    axes.set_xlabel(along, color=style.ink)
    axes.set_ylabel(up, color=style.ink)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color=style.driveway, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=style.faint_ink, length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(style.driveway)


def draw_speed_chart(
    axes: Axes, paths_m: Sequence[Polyline], *, colours: Sequence[str], dt_s: float, style: Style
) -> Axes:
    """Draws speed over time in the corner of a panel that hides the fewest path points; returns the chart.

    Args:
        axes: The panel, with its limits set.
        paths_m: Paths [T, 2] that begin at the current step; speeds are their finite differences.
        colours: A colour per path.
        dt_s: Seconds between points.
        style: Colours of the chart.
    """
    left, bottom = _freest_corner(axes, np.concatenate(list(paths_m)))
    width, height = _SPEED_WIDTH, _SPEED_HEIGHT
    # An opaque background, so that the road does not show through the numbers.
    background = Rectangle((left, bottom), width, height, transform=axes.transAxes, facecolor=style.paper, alpha=0.95)
    background.set_zorder(Layer.ANNOTATIONS - 1)
    axes.add_patch(background)
    inner = (left + 0.16 * width, bottom + 0.19 * height, 0.76 * width, 0.6 * height)
    chart = axes.inset_axes(inner, zorder=Layer.ANNOTATIONS)
    chart.set_facecolor(style.paper)
    for path_m, colour in zip(paths_m, colours, strict=True):
        speed_mps = np.linalg.norm(np.diff(path_m, axis=0), axis=1) / dt_s
        chart.plot(dt_s * np.arange(1, len(path_m)), speed_mps, color=colour, linewidth=2.0)
    chart.set_xlim(0, None)
    chart.set_ylim(0, None)
    chart.set_xticks(np.arange(0, max(map(len, paths_m)) * dt_s, 2.0))
    chart.set_title("m/s over seconds", fontsize=8.5, color=style.ink, loc="left", pad=3)
    chart.tick_params(labelsize=7.5, length=0, pad=2, colors=style.faint_ink)
    chart.grid(color=style.driveway, linewidth=0.7)
    for side, spine in chart.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(style.faint_ink)
    return chart


def _freest_corner(axes: Axes, points_m: Float[np.ndarray, "P 2"]) -> tuple[float, float]:
    """Lower left corner of the chart in axes fractions; the lower left of the panel is for the scale bar."""
    points = axes.transLimits.transform(points_m)
    low, right, top = _SPEED_MARGIN, 1 - _SPEED_WIDTH - _SPEED_MARGIN, 1 - _SPEED_HEIGHT - _SPEED_MARGIN

    def num_hidden(corner: tuple[float, float]) -> int:
        inside = (points >= corner) & (points <= np.add(corner, (_SPEED_WIDTH, _SPEED_HEIGHT)))
        return int(inside.all(axis=1).sum())

    return min([(right, top), (low, top), (right, low)], key=num_hidden)
