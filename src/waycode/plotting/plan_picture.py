"""Pictures of a search, a panel per token (paper, figures 1 and 5), and of plans beside recorded paths (figure 4).

Every panel is rotated so that the planned agent faces up.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D

from waycode.plotting.charts import draw_speed_chart
from waycode.plotting.map_layers import ROUTE_ALPHA, draw_map, draw_route, draw_signals
from waycode.plotting.scene_picture import (
    draw_legend_row,
    draw_scale_bar,
    new_figure,
    prepare_axes,
    prepare_path,
    save_figure,
    shown_text,
)  # fmt: skip
from waycode.plotting.shapes import Polyline
from waycode.plotting.style import Layer, Style
from waycode.plotting.track_layers import BOX_TIMES_S, draw_boxes_over_time, draw_path, draw_tracks
from waycode.plotting.viewport import PlottingError, RigidTransform, Viewport
from waycode.scene import Scene, TrackType

# Pale roads and road users, so that the paths stand out.
PLAN_STYLE = Style(
    asphalt="#d6d9de",
    bike_lane="#e2dcd3",
    road_edge="#a4a9b2",
    tracks=dict.fromkeys(TrackType, "#949ba7"),
)
_PANEL_IN, _GAP_IN, _MARGIN_IN = 3.3, 0.14, 0.2  # width of a panel, between panels, around all
_TITLE_IN, _CAPTION_IN, _LEGEND_IN = 0.5, 0.47, 0.36
_NOTE_SIZE, _NOTE_LINE_IN, _NOTE_CHARACTERS_PER_IN = 10.5, 0.19, 12.5  # of the note below the panels
_MAX_ZOOM_OUT = 1.4  # to include distant candidates
_LEAST_GAP_M = 1.0  # between two times beside a path
_MAX_ALPHA, _MIN_ALPHA = 0.85, 0.28  # opacity of the best and of the worst candidate


@dataclass(frozen=True, kw_only=True)
class SearchPanel:
    """The candidates of one search step, in the scene frame."""

    position_m: Float[np.ndarray, "K T 2"]  # steps 1..T after the current step
    rejected: Bool[np.ndarray, " K"]  # by the variance gate
    chosen: int  # index of the candidate whose tokens begin the plan
    rank: Int[np.ndarray, " K"] | None = None  # by cost, 0 is the best; worse candidates are fainter. None: all alike
    tokens: tuple[int, ...] = ()  # of the chosen candidate, for the caption

    def __post_init__(self) -> None:
        if not 0 <= self.chosen < len(self.position_m):
            raise PlottingError(f"candidate {self.chosen} is chosen, expected one of {len(self.position_m)}")


@dataclass(frozen=True, kw_only=True)
class ComparisonPanel:
    """An agent's planned path beside its recorded path, in the scene frame."""

    scene: Scene
    agent: int  # index of the track
    planned_m: Polyline | None = None  # steps 1, 2, ... after the current step
    recorded_m: Polyline | None = None  # the same; may be shorter
    companion: tuple[int, Polyline] | None = None  # a second planned road user, who has the goal; times are then shown
    caption: str = ""  # above the panel
    detail: str = ""  # second line of the caption

    @property
    def start_m(self) -> Float[np.ndarray, "2"]:
        """Current position of the agent."""
        return self.scene.tracks.position_m[self.agent, self.scene.current_step].astype(np.float64)

    @property
    def points_m(self) -> Polyline:
        """All points that the picture shows."""
        paths = (self.recorded_m, self.planned_m, None if self.companion is None else self.companion[1])
        return np.concatenate([self.start_m[None], *(path for path in paths if path is not None)])

    def coloured_paths_m(self, style: Style) -> list[tuple[str, Polyline]]:
        """Colour and points of the recorded and the planned path, as far as given, from the current position on."""
        both = ((style.original, self.recorded_m), (style.chosen, self.planned_m))
        return [(colour, np.concatenate([self.start_m[None], path])) for colour, path in both if path is not None]

    def facing_up(self) -> "ComparisonPanel":
        """The same panel with the agent at the origin, facing up."""
        transform = RigidTransform.facing_up(self.scene, self.agent)
        planned_m = None if self.planned_m is None else transform.points(self.planned_m)
        recorded_m = None if self.recorded_m is None else transform.points(self.recorded_m)
        companion = None if self.companion is None else (self.companion[0], transform.points(self.companion[1]))
        scene = transform.scene(self.scene)
        return replace(self, scene=scene, planned_m=planned_m, recorded_m=recorded_m, companion=companion)


def save_plan_picture(scene: Scene, path: str | Path, *, dots_per_inch: int = 120, **options: Any) -> Path:
    """Writes the picture of `plan_figure`.

    Args:
        scene: The scene of the plan.
        path: A .png, .pdf, .svg or .jpg file; its folder is created.
        dots_per_inch: Resolution.
        options: Those of `plan_figure`.
    """
    path = prepare_path(path)
    return save_figure(plan_figure(scene, **options).axes[0], path, dots_per_inch=dots_per_inch)


def plan_figure(
    scene: Scene,
    *,
    agent: int,
    search: Sequence[SearchPanel],
    planned_m: Float[np.ndarray, "T 2"],
    recorded_m: Float[np.ndarray, "S 2"] | None = None,
    title: str = "",
    note: str = "",
    goal_m: tuple[float, float] | None = None,
    route: bool = False,
    speeds: bool = False,
    style: Style = PLAN_STYLE,
) -> Figure | SubFigure:
    """Draws a panel per search step with its candidates, and a last one with the recorded and the planned path.

    All positions are in the scene frame.

    Args:
        scene: The scene of the plan.
        agent: Index of the planned track.
        search: The candidates of each step, at least one; `waycode.planner.search_panels` makes them.
        planned_m: Planned positions at the steps after the current one.
        recorded_m: Recorded positions, if any.
        title: Title above all panels.
        note: A sentence below all panels, such as `Plan.summary`.
        goal_m: A point marked in every panel.
        route: Whether to tint the ego's route.
        speeds: Whether to add a chart of speed over time to the last panel.
        style: Colours and widths.
    """
    if not search:
        raise PlottingError("got a search of 0 tokens, expected at least one panel")
    transform = RigidTransform.facing_up(scene, agent)
    search = [replace(panel, position_m=transform.points(panel.position_m)) for panel in search]
    goals_m = np.zeros((0, 2)) if goal_m is None else transform.points(np.array([goal_m]))
    compared = ComparisonPanel(
        scene=scene, agent=agent, planned_m=planned_m, recorded_m=recorded_m, detail="boxes every 2 s",
        caption="the plan" if recorded_m is None else "original and found",
    ).facing_up()  # fmt: skip
    viewport = _viewport(compared, search, goals_m)
    all_axes = new_panels(len(search) + 1, aspect=viewport.aspect, title=title, note=note, style=style)
    for axes in all_axes:
        _draw_background(axes, compared, viewport, route=route, style=style)
        axes.scatter(
            goals_m[:, 0], goals_m[:, 1], marker="X", s=120, c=style.goal, edgecolors="white", linewidths=1.2,
            zorder=Layer.ANNOTATIONS - 1,
        )  # fmt: skip
    for number, (axes, panel) in enumerate(zip(all_axes[:-1], search, strict=True), start=1):
        draw_candidates(axes, panel, start_m=compared.start_m, style=style)
        tokens = f": {' '.join(map(str, panel.tokens))}" if panel.tokens else ""
        num_rejected = int(panel.rejected.sum())
        detail = f"{len(panel.position_m)} candidates" + (f", {num_rejected} rejected" if num_rejected else "")
        _draw_caption(axes, f"{number} token{'s' if number > 1 else ''}{tokens}", detail, style=style)
    draw_comparison(all_axes[-1], compared, style=style)
    if speeds:
        colours, paths = zip(*compared.coloured_paths_m(style), strict=True)
        draw_speed_chart(all_axes[-1], paths, colours=colours, dt_s=scene.dt_s, style=style)
    draw_scale_bar(all_axes[0], at_right=viewport.centre_m[0] > 0, style=style)  # not over the agent, which is at 0
    _draw_legend(all_axes[0], [compared], search=search, goal=goal_m is not None, route=route, style=style)
    return all_axes[0].figure


def save_comparison_picture(
    panels: Sequence[ComparisonPanel],
    path: str | Path,
    *,
    title: str = "",
    note: str = "",
    dots_per_inch: int = 120,
    style: Style = PLAN_STYLE,
) -> Path:
    """Draws plans beside recorded paths, a panel per plan, each in its own scene.

    Args:
        panels: At least one panel.
        path: A .png, .pdf, .svg or .jpg file; its folder is created.
        title: Title above all panels.
        note: A sentence below all panels, such as `Plan.summary`.
        dots_per_inch: Resolution.
        style: Colours and widths.
    """
    path = prepare_path(path)
    figure = comparison_figure(panels, title=title, note=note, style=style)
    return save_figure(figure.axes[0], path, dots_per_inch=dots_per_inch)


def comparison_figure(
    panels: Sequence[ComparisonPanel], *, title: str = "", note: str = "", style: Style = PLAN_STYLE
) -> Figure | SubFigure:
    """The figure of `save_comparison_picture`, for notebooks.

    Args: as for `save_comparison_picture`.
    """
    if not panels:
        raise PlottingError("got 0 panels, expected at least one")
    is_one_scene = all(panel.scene is panels[0].scene and panel.agent == panels[0].agent for panel in panels)
    panels = [panel.facing_up() for panel in panels]
    viewports = [_viewport(panel) for panel in panels]
    if is_one_scene:  # then the same part of it everywhere
        viewports = [Viewport.around(np.concatenate([panel.points_m for panel in panels]))] * len(panels)
    aspect = max(viewport.aspect for viewport in viewports)
    all_axes = new_panels(len(panels), aspect=aspect, title=title, note=note, style=style)
    for axes, panel, viewport in zip(all_axes, panels, viewports, strict=True):
        _draw_background(axes, panel, viewport.with_aspect(aspect), route=False, style=style)
        draw_comparison(axes, panel, style=style)
        draw_scale_bar(axes, at_right=viewport.centre_m[0] > 0, style=style)
    _draw_legend(all_axes[0], panels, style=style)
    return all_axes[0].figure


def new_panels(count: int, *, aspect: float, title: str, note: str = "", style: Style) -> list[Axes]:
    """Axes in a row of a new figure, with room for the title, captions, the legend and a note at the bottom."""
    panel_height = _PANEL_IN * aspect
    width = 2 * _MARGIN_IN + count * _PANEL_IN + (count - 1) * _GAP_IN
    lines = wrap(note, width=int(width * _NOTE_CHARACTERS_PER_IN))
    below = _LEGEND_IN + len(lines) * _NOTE_LINE_IN + (_GAP_IN if lines else 0)
    height = below + panel_height + _CAPTION_IN + (_TITLE_IN if title else _MARGIN_IN)
    figure = new_figure(width, height, style=style)
    figure.text(
        _MARGIN_IN / width, _GAP_IN / height, "\n".join(map(shown_text, lines)), fontsize=_NOTE_SIZE, color=style.ink,
        va="bottom", linespacing=1.3, parse_math=False,
    )  # fmt: skip
    figure.text(
        _MARGIN_IN / width, 1 - _MARGIN_IN / height, shown_text(title), fontsize=14, fontweight="bold",
        color=style.ink, va="top", parse_math=False,
    )  # fmt: skip
    lefts = [_MARGIN_IN + index * (_PANEL_IN + _GAP_IN) for index in range(count)]
    return [figure.add_axes((left / width, below / height, _PANEL_IN / width, panel_height / height)) for left in lefts]


def draw_candidates(axes: Axes, panel: SearchPanel, *, start_m: Float[np.ndarray, "2"], style: Style) -> None:
    """Draws candidates as thin lines that fade with the rank, rejected ones dashed and grey, and the chosen one on top.

    Args:
        axes: Axes with their limits set.
        panel: The candidates.
        start_m: Current position of the agent, where all candidates begin.
        style: Colours.
    """
    count = len(panel.position_m)
    rank = np.zeros(count, np.int64) if panel.rank is None else panel.rank
    opacity = _MAX_ALPHA - (_MAX_ALPHA - _MIN_ALPHA) * rank / max(count - 1, 1)
    start = np.broadcast_to(start_m, (count, 1, 2))
    paths = np.concatenate([start, panel.position_m], axis=1).astype(np.float64)
    others = np.arange(count) != panel.chosen
    for rejected, colour, line in ((True, style.rejected, (0, (4, 2.5))), (False, style.candidate, "solid")):
        which = np.flatnonzero(others & (panel.rejected == rejected))
        colours = [(*to_rgb(colour), 0.8 if rejected else float(opacity[index])) for index in which]
        lines = LineCollection(
            list(paths[which]), colors=colours, linewidths=1.1 if rejected else 1.5, linestyles=[line],
            zorder=Layer.TRAILS,
        )  # fmt: skip
        axes.add_collection(lines, autolim=False)
        axes.scatter(
            paths[which, -1, 0], paths[which, -1, 1], s=7, c=colours or None, linewidths=0, zorder=Layer.TRAILS
        )
    chosen = paths[panel.chosen]
    draw_path(axes, chosen, colour=style.chosen, dashed=bool(panel.rejected[panel.chosen]))
    axes.scatter(
        chosen[-1, 0], chosen[-1, 1], s=42, c=style.chosen, edgecolors="white", linewidths=1.1, zorder=Layer.HIGHLIGHTS
    )


def draw_comparison(axes: Axes, panel: ComparisonPanel, *, style: Style = PLAN_STYLE) -> None:
    """Draws the recorded path in blue under the planned one in green, with boxes every 2 s, and the caption."""
    for colour, path_m in panel.coloured_paths_m(style):
        draw_path(axes, path_m, colour=colour)
        draw_boxes_over_time(axes, path_m, panel.scene, agent=panel.agent, colour=colour)
    if panel.companion is not None:
        agent, path_m = panel.companion
        start_m = panel.scene.tracks.position_m[agent, panel.scene.current_step].astype(np.float64)
        companion_m = np.concatenate([start_m[None], path_m])
        draw_path(axes, companion_m, colour=style.goal)
        draw_boxes_over_time(axes, companion_m, panel.scene, agent=agent, colour=style.goal)
        for colour, timed_m in (*panel.coloured_paths_m(style), (style.goal, companion_m)):
            _draw_times(axes, timed_m, dt_s=panel.scene.dt_s, colour=colour)
    _draw_caption(axes, panel.caption, panel.detail, style=style)


def _draw_times(axes: Axes, path_m: Float[np.ndarray, "T 2"], *, dt_s: float, colour: str) -> None:
    """Seconds beside the boxes of a path; where it stands, the last of them."""
    steps = [round(time_s / dt_s) for time_s in BOX_TIMES_S if round(time_s / dt_s) < len(path_m)]
    for step, after in zip(steps, [*steps[1:], None], strict=True):
        if after is None or np.linalg.norm(path_m[after] - path_m[step]) > _LEAST_GAP_M:
            axes.annotate(
                f"{step * dt_s:.0f} s", path_m[step], xytext=(9, 3), textcoords="offset points", fontsize=8.5,
                color=colour, fontweight="bold", zorder=Layer.ANNOTATIONS, annotation_clip=True,
            )  # fmt: skip


def _viewport(
    compared: ComparisonPanel, search: Sequence[SearchPanel] = (), goals_m: Float[np.ndarray, "_ 2"] | None = None
) -> Viewport:
    """Contains both paths and the goals, and as much of the candidates as `_MAX_ZOOM_OUT` allows."""
    points = np.concatenate([compared.points_m, *([] if goals_m is None else [goals_m])])
    candidates = [panel.position_m[~panel.rejected].reshape(-1, 2) for panel in search]
    tight, wide = Viewport.around(points), Viewport.around(np.concatenate([points, *candidates]))
    return wide if wide.width_m <= _MAX_ZOOM_OUT * tight.width_m else tight.scaled(_MAX_ZOOM_OUT)


def _draw_background(axes: Axes, panel: ComparisonPanel, viewport: Viewport, *, route: bool, style: Style) -> None:
    """Map, traffic lights and road users at the current step; the planned agent has the colour of the ego, no halos."""
    prepare_axes(axes, style)
    viewport.apply(axes)
    draw_map(axes, panel.scene, style=style)
    if route:
        draw_route(axes, panel.scene, style=style)
    draw_signals(axes, panel.scene, style=style)
    tracks = replace(panel.scene.tracks, to_predict=np.zeros(0, np.int32), ego_index=panel.agent)
    draw_tracks(axes, replace(panel.scene, tracks=tracks), trails=False, style=style)


def _draw_caption(axes: Axes, caption: str, detail: str, *, style: Style) -> None:
    place: dict[str, Any] = {
        "xy": (0, 1), "xycoords": "axes fraction", "textcoords": "offset points", "va": "bottom", "clip_on": False,
        "parse_math": False,
    }  # fmt: skip
    axes.annotate(shown_text(caption), xytext=(0, 18), fontsize=12, fontweight="bold", color=style.ink, **place)
    axes.annotate(shown_text(detail), xytext=(0, 4), fontsize=10, color=style.faint_ink, **place)


def _draw_legend(
    axes: Axes,
    compared: Sequence[ComparisonPanel],
    *,
    search: Sequence[SearchPanel] = (),
    goal: bool = False,
    route: bool = False,
    style: Style,
) -> None:
    """A row below the panels, from the left edge of these axes, that explains the colours of what is drawn."""

    def line(colour: str, width: float, **more: Any) -> Line2D:
        return Line2D([], [], color=colour, linewidth=width, **more)

    any_rejected = any(panel.rejected.any() for panel in search)
    entries: list[tuple[str, Any, bool]] = [  # label, handle, whether it is in the picture
        ("planned road user", line(style.ego, 7.0), True),
        ("candidate (the worse, the fainter)", line(style.candidate, 1.6), bool(search)),
        ("rejected: too uncertain", line(style.rejected, 1.4, dashes=(4, 2.5)), any_rejected),
        ("found", line(style.chosen, 3.5), any(panel.planned_m is not None for panel in compared)),
        ("original", line(style.original, 3.5), any(panel.recorded_m is not None for panel in compared)),
        ("has the goal", line(style.goal, 3.5), any(panel.companion is not None for panel in compared)),
        ("goal", line(style.goal, 0.0, marker="X", markersize=9), goal),
        ("route", line(style.route, 7.0, alpha=ROUTE_ALPHA), route),
    ]
    draw_legend_row(
        axes, entries, corner=(-0.012, -0.07 / _PANEL_IN), style=style, fontsize=10.5, handlelength=1.6,
        columnspacing=1.8, handletextpad=0.6,
    )  # fmt: skip
