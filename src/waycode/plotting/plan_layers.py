"""What a search tried and what it chose: candidates of a token, the way found and the way recorded."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb

from waycode.plotting.shapes import fill, rounded_boxes
from waycode.plotting.style import Layer, Style
from waycode.plotting.viewport import PlottingError, width_pt
from waycode.scene import Scene
from waycode.scene.geometry import box_corners

BOX_TIMES_S = (0.0, 2.0, 4.0, 6.0, 8.0)
WAY_WIDTH_M = 0.9
STANDING_M = 0.3  # who moves less within a second stands: its box keeps its heading
STRONGEST, FAINTEST = 0.85, 0.28  # opacity of the best and of the worst candidate


@dataclass(frozen=True, kw_only=True)
class Stage:
    """All candidates of one more token, in the scene frame."""

    position_m: Float[np.ndarray, "K T 2"]  # steps 1..T after the current one
    rejected: Bool[np.ndarray, " K"]  # by the variance gate
    chosen: int  # the candidate that the plan goes on with
    rank: Int[np.ndarray, " K"] | None = None  # 0 is the best by cost; the worse, the fainter. None: all the same
    tokens: tuple[int, ...] = ()  # of the chosen candidate

    def __post_init__(self) -> None:
        if not 0 <= self.chosen < len(self.position_m):
            raise PlottingError(f"candidate {self.chosen} is chosen, expected one of {len(self.position_m)}")


def draw_candidates(axes: Axes, stage: Stage, *, start_m: Float[np.ndarray, "2"], style: Style | None = None) -> None:
    """Thin lines that fade with the rank, dashed grey ones for what the gate rejects, and a strong one on top."""
    style = style or Style()
    count = len(stage.position_m)
    rank = np.zeros(count, np.int64) if stage.rank is None else stage.rank
    opacity = STRONGEST - (STRONGEST - FAINTEST) * rank / max(count - 1, 1)
    paths = _with_start(stage.position_m, start_m)
    others = np.arange(count) != stage.chosen
    for rejected, colour, line in ((True, style.rejected, (0, (4, 2.5))), (False, style.candidate, "solid")):
        which = np.flatnonzero(others & (stage.rejected == rejected))
        colours = [(*to_rgb(colour), 0.8 if rejected else float(opacity[index])) for index in which]
        lines = LineCollection(
            list(paths[which]), colors=colours, linewidths=1.1 if rejected else 1.5, linestyles=[line],
            zorder=Layer.TRAILS,
        )  # fmt: skip
        axes.add_collection(lines, autolim=False)
        axes.scatter(
            paths[which, -1, 0], paths[which, -1, 1], s=7, c=colours or None, linewidths=0, zorder=Layer.TRAILS
        )
    chosen = paths[stage.chosen]
    draw_way(axes, chosen, colour=style.chosen, dashed=bool(stage.rejected[stage.chosen]))
    axes.scatter(
        chosen[-1, 0], chosen[-1, 1], s=42, c=style.chosen, edgecolors="white", linewidths=1.1, zorder=Layer.HIGHLIGHTS
    )


def draw_way(axes: Axes, path_m: Float[np.ndarray, "T 2"], *, colour: str, dashed: bool = False) -> None:
    """A strong line with a white seam; dashed where it was found but is not to be trusted."""
    width = width_pt(axes, WAY_WIDTH_M, least_pt=2.6)
    seam = LineCollection([path_m], colors="white", linewidths=width + 1.8, zorder=Layer.HALOS, alpha=0.9)
    line = LineCollection([path_m], colors=colour, linewidths=width, zorder=Layer.HALOS)
    if dashed:
        line.set_linestyle((0, (2.2, 1.1)))
    for collection in (seam, line):
        collection.set_joinstyle("round")
        collection.set_capstyle("butt" if dashed else "round")
        axes.add_collection(collection, autolim=False)


def draw_boxes_over_time(
    axes: Axes, path_m: Float[np.ndarray, "T 2"], scene: Scene, *, agent: int, colour: str
) -> None:
    """The agent's box at 0, 2, 4, 6, 8 s along a path that begins at the current step."""
    steps = [round(time_s / scene.dt_s) for time_s in BOX_TIMES_S]
    steps = [step for step in steps if 0 < step < len(path_m)]
    heading = path_headings(path_m, start_rad=float(scene.tracks.heading_rad[agent, scene.current_step]))
    size = np.array([scene.tracks.length_m[agent], scene.tracks.width_m[agent]], np.float64)
    corners = box_corners(
        path_m[steps].astype(np.float64), heading[steps], length_m=np.full(len(steps), size[0]),
        width_m=np.full(len(steps), size[1]),
    )  # fmt: skip
    for shape in rounded_boxes(list(corners), [0.28 * size.min()] * len(steps)):
        fill(axes, shape.buffer(0.15), colour="white", layer=Layer.BOXES, alpha=0.9)
        fill(axes, shape, colour=colour, layer=Layer.BOXES, alpha=0.75)


def path_headings(path_m: Float[np.ndarray, "T 2"], *, start_rad: float, reach: int = 5) -> Float[np.ndarray, " T"]:
    """Heading at each point, seen over `reach` steps to both sides; held while standing, at first as given.

    The direction of a single step of 0.1 s is mostly noise, above all at the end of a decoded path.
    """
    index = np.arange(len(path_m))
    chord = path_m[np.minimum(index + reach, len(path_m) - 1)] - path_m[np.maximum(index - reach, 0)]
    moved = np.linalg.norm(chord, axis=1) > STANDING_M
    last = np.maximum.accumulate(np.where(moved, index, -1))
    angle = np.arctan2(chord[:, 1], chord[:, 0])
    return np.where(last >= 0, angle[np.maximum(last, 0)], start_rad)


def _with_start(position_m: Float[np.ndarray, "K T 2"], start_m: Float[np.ndarray, "2"]) -> Float[np.ndarray, "K S 2"]:
    start = np.broadcast_to(start_m, (len(position_m), 1, 2))
    return np.concatenate([start, position_m], axis=1).astype(np.float64)
