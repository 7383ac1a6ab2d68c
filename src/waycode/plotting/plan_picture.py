"""A search as one picture: a panel per token, then what was recorded beside what was found (paper, figures 1 and 5)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from waycode.plotting.furniture import draw_scale_bar
from waycode.plotting.map_layers import ROUTE_ALPHA
from waycode.plotting.plan_layers import Stage, draw_boxes_over_time, draw_candidates, draw_way
from waycode.plotting.plan_panels import (
    PLAN_STYLE,
    Frame,
    draw_caption,
    draw_ground,
    draw_row_legend,
    new_panels,
    save_figure,
)
from waycode.plotting.scene_picture import checked_path
from waycode.plotting.speed_chart import draw_speed_chart
from waycode.plotting.style import Layer, Style
from waycode.plotting.turned import Turn
from waycode.plotting.viewport import PlottingError
from waycode.scene import Scene

MOST_ZOOM_OUT = 1.4  # for the sake of candidates that lead far away
Positions = Float[np.ndarray, "_ 2"]  # steps 1, 2, ... after the current one; the recorded way may be shorter


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What was found for an agent beside what it did, in the scene frame."""

    scene: Scene
    agent: int  # index of the track
    chosen_m: Positions | None = None
    original_m: Positions | None = None
    caption: str = ""
    detail: str = ""

    @property
    def start_m(self) -> Float[np.ndarray, "2"]:
        return self.scene.tracks.position_m[self.agent, self.scene.current_step].astype(np.float64)

    @property
    def ways_m(self) -> list[Positions]:
        """What there is of the two ways, with the current position in front."""
        ways = [way for way in (self.original_m, self.chosen_m) if way is not None]
        return [np.concatenate([self.start_m[None], way]) for way in ways]

    def colours(self, style: Style) -> list[str]:
        """Of the two ways, as far as they are there."""
        both = ((self.original_m, style.original), (self.chosen_m, style.chosen))
        return [colour for way, colour in both if way is not None]

    def facing_up(self) -> tuple["Outcome", Turn]:
        """The same with the agent at the origin, facing up, and how to bring other points there."""
        tracks, now = self.scene.tracks, self.scene.current_step
        turn = Turn(self.start_m, angle_rad=float(np.pi / 2 - tracks.heading_rad[self.agent, now]))
        chosen_m = None if self.chosen_m is None else turn.points(self.chosen_m)
        original_m = None if self.original_m is None else turn.points(self.original_m)
        return replace(self, scene=turn.scene(self.scene), chosen_m=chosen_m, original_m=original_m), turn


def save_plan_picture(
    scene: Scene,
    path: str | Path,
    *,
    agent: int,
    stages: Sequence[Stage],
    chosen_m: Float[np.ndarray, "T 2"],
    original_m: Float[np.ndarray, "S 2"] | None = None,
    title: str = "",
    goal_m: tuple[float, float] | None = None,
    route: bool = False,
    speeds: bool = False,
    dots_per_inch: int = 120,
    style: Style = PLAN_STYLE,
) -> Path:
    """Draws a panel per token with all its candidates, and a last one with the recorded and the chosen way.

    `route` shows the ego's route, `speeds` a chart of speed over time in the last panel. All positions are in the scene
    frame; the picture is turned so that the agent drives up.
    """
    path = checked_path(path)
    if not stages:
        raise PlottingError("a picture of a search of 0 tokens was asked for, expected at least one stage")
    outcome, turn = Outcome(scene=scene, agent=agent, chosen_m=chosen_m, original_m=original_m).facing_up()
    stages = [replace(stage, position_m=turn.points(stage.position_m)) for stage in stages]
    goals = np.zeros((0, 2)) if goal_m is None else turn.points(np.array([goal_m]))
    frame = _frame_of(outcome, stages, goals)
    panels = new_panels(len(stages) + 1, ratio=frame.ratio, title=title, style=style)
    for axes in panels:
        draw_ground(axes, outcome.scene, frame, agent=agent, route=route, style=style)
        _draw_goals(axes, goals, style)
    for number, (axes, stage) in enumerate(zip(panels[:-1], stages, strict=True), start=1):
        draw_candidates(axes, stage, start_m=outcome.start_m, style=style)
        draw_caption(axes, *_stage_captions(stage, number), style=style)
    draw_outcome(panels[-1], outcome, style=style)
    if speeds:
        draw_speed_chart(panels[-1], outcome.ways_m, colours=outcome.colours(style), dt_s=scene.dt_s, style=style)
    words = "the plan" if original_m is None else "original and found"
    draw_caption(panels[-1], words, "boxes every 2 s", style=style)
    draw_scale_bar(panels[0], at_right=frame.centre_m[0] > 0, style=style)  # not over the agent, which is at 0
    draw_row_legend(
        panels[0], _legend([outcome], style, stages=stages, goal=goal_m is not None, route=route), style=style
    )
    return save_figure(panels[0], path, dots_per_inch=dots_per_inch)


def save_outcomes_picture(
    outcomes: Sequence[Outcome],
    path: str | Path,
    *,
    title: str = "",
    dots_per_inch: int = 120,
    style: Style = PLAN_STYLE,
) -> Path:
    """Draws outcomes side by side, each in its own scene: the same tokens in several scenes (paper, figure 4)."""
    path = checked_path(path)
    if not outcomes:
        raise PlottingError("a picture of 0 outcomes was asked for, expected at least one")
    turned = [outcome.facing_up()[0] for outcome in outcomes]
    frames = [_frame_of(outcome) for outcome in turned]
    ratio = max(frame.ratio for frame in frames)
    panels = new_panels(len(turned), ratio=ratio, title=title, style=style)
    for axes, outcome, frame in zip(panels, turned, frames, strict=True):
        draw_ground(axes, outcome.scene, frame.with_ratio(ratio), agent=outcome.agent, route=False, style=style)
        draw_outcome(axes, outcome, style=style)
        draw_caption(axes, outcome.caption, outcome.detail, style=style)
        draw_scale_bar(axes, at_right=frame.centre_m[0] > 0, style=style)
    draw_row_legend(panels[0], _legend(turned, style), style=style)
    return save_figure(panels[0], path, dots_per_inch=dots_per_inch)


def draw_outcome(axes: Axes, outcome: Outcome, *, style: Style = PLAN_STYLE) -> None:
    """The recorded way in blue under the found one in green, with the agent's box every 2 s on both."""
    for path_m, colour in zip(outcome.ways_m, outcome.colours(style), strict=True):
        draw_way(axes, path_m, colour=colour)
        draw_boxes_over_time(axes, path_m, outcome.scene, agent=outcome.agent, colour=colour)


def _frame_of(outcome: Outcome, stages: Sequence[Stage] = (), goals_m: Float[np.ndarray, "_ 2"] | None = None) -> Frame:
    """Holds both ways, the goals and, as far as it does not become much larger, the candidates."""
    goals = [] if goals_m is None else [goals_m]
    points = np.concatenate([outcome.start_m[None], *outcome.ways_m, *goals])
    tried = [stage.position_m[~stage.rejected].reshape(-1, 2) for stage in stages]
    tight, wide = Frame.around(points), Frame.around(np.concatenate([points, *tried]))
    return wide if wide.width_m <= MOST_ZOOM_OUT * tight.width_m else tight.scaled(MOST_ZOOM_OUT)


def _draw_goals(axes: Axes, goals_m: Float[np.ndarray, "_ 2"], style: Style) -> None:
    axes.scatter(
        goals_m[:, 0],
        goals_m[:, 1],
        marker="X",
        s=120,
        c=style.goal,
        edgecolors="white",
        linewidths=1.2,
        zorder=Layer.FURNITURE - 1,
    )


def _stage_captions(stage: Stage, number: int) -> tuple[str, str]:
    count, rejected = len(stage.position_m), int(stage.rejected.sum())
    tokens = f": {' '.join(map(str, stage.tokens))}" if stage.tokens else ""
    caption = f"{number} token{'s' if number > 1 else ''}{tokens}"
    return caption, f"{count} candidates" + (f", {rejected} rejected" if rejected else "")


def _legend(
    outcomes: Sequence[Outcome], style: Style, *, stages: Sequence[Stage] = (), goal: bool = False, route: bool = False
) -> list[tuple[str, Any]]:
    """Only what is in the picture."""

    def line(colour: str, width: float, **more: Any) -> Line2D:
        return Line2D([], [], color=colour, linewidth=width, **more)

    entries: list[tuple[str, Any, bool]] = [
        ("planned road user", line(style.ego, 7.0), True),
        ("candidate (the worse, the fainter)", line(style.candidate, 1.6), bool(stages)),
        ("rejected: too uncertain", line(style.rejected, 1.4, dashes=(4, 2.5)), any(s.rejected.any() for s in stages)),
        ("found", line(style.chosen, 3.5), any(outcome.chosen_m is not None for outcome in outcomes)),
        ("original", line(style.original, 3.5), any(outcome.original_m is not None for outcome in outcomes)),
        ("goal", line(style.goal, 0.0, marker="X", markersize=9), goal),
        ("route", line(style.route, 7.0, alpha=ROUTE_ALPHA), route),
    ]
    return [(name, handle) for name, handle, there in entries if there]
