"""Measures of a motion: turn angle, lane changes, speed.

Recorded futures and plans are measured alike, by their positions; headings are derived from these.
Axes: F the current step and the steps after it, T the steps after it, H the steps before it.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int
from scipy.interpolate import make_lsq_spline

from waycode.scene import Scene
from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import arclengths, project
from waycode.scene.lane_graph import LaneGraph

_MOVING_MPS = 0.5  # below this speed the direction of motion is noise
_KNOT_SPACING_S = 1.0  # of the B-spline: smooths the noise of single steps and keeps every turn of a car
_LATE_S = 3.0  # the slow-down objective limits the speed in the last three seconds (appendix A.7)


@dataclass(frozen=True, kw_only=True)
class MeasuredMotion:
    """Positions of an agent's centre from the current step on, and its observed past."""

    position_m: Float[np.ndarray, "F 2"]  # scene frame, the current position first
    past_m: Float[np.ndarray, "H 2"]  # before the current step, since the last gap in the observations
    start_heading_rad: float  # of the body at the current step
    dt_s: float

    @staticmethod
    def of(scene: Scene, agent: int, future_m: Float[np.ndarray, "T 2"] | None = None) -> "MeasuredMotion":
        """The motion of an agent.

        Args:
            scene: the scene.
            agent: index of the track.
            future_m: planned positions in the scene frame; None: the recorded ones.
        """
        tracks, now = scene.tracks, scene.current_step
        recorded = tracks.position_m[agent].astype(np.float64)
        future = recorded[now + 1 :] if future_m is None else np.asarray(future_m, np.float64)
        gaps = np.flatnonzero(~tracks.valid[agent, :now])
        return MeasuredMotion(
            position_m=np.concatenate([recorded[now : now + 1], future]),
            past_m=recorded[int(gaps[-1]) + 1 if len(gaps) else 0 : now],
            start_heading_rad=float(tracks.heading_rad[agent, now]),
            dt_s=scene.dt_s,
        )

    @cached_property
    def speed_mps(self) -> Float[np.ndarray, " T"]:
        """Mean speed over each step."""
        return np.linalg.norm(np.diff(self.position_m, axis=0), axis=1) / self.dt_s

    @cached_property
    def heading_rad(self) -> Float[np.ndarray, " F"]:
        """Direction of motion by central differences, held while standing; the body's heading at the start."""
        ends = np.concatenate([self.position_m[2:] - self.position_m[:-2], np.diff(self.position_m[-2:], axis=0)])
        spans = np.append(np.full(len(ends) - 1, 2 * self.dt_s), self.dt_s)
        moving = np.append(False, np.linalg.norm(ends, axis=1) / spans > _MOVING_MPS)
        angle = np.append(self.start_heading_rad, np.arctan2(ends[:, 1], ends[:, 0]))
        return angle[np.maximum.accumulate(np.where(moving, np.arange(len(angle)), 0))]

    @property
    def mean_speed_mps(self) -> float:
        return float(self.speed_mps.mean())

    @property
    def late_speed_mps(self) -> float:
        """The highest speed in the last three seconds."""
        return float(self.speed_mps[-round(_LATE_S / self.dt_s) :].max())

    @property
    def distance_m(self) -> float:
        """Travelled distance."""
        return float(arclengths(self.position_m)[-1])

    def leftward_turn_rad(self) -> float:
        """Cumulative leftward change of heading along a cubic B-spline fitted to the positions (paper, footnote)."""
        time_s = np.arange(len(self.position_m)) * self.dt_s
        pieces = max(1, round(time_s[-1] / _KNOT_SPACING_S))
        inner = np.linspace(time_s[0], time_s[-1], pieces + 1)[1:-1]
        knots = np.concatenate([np.repeat(time_s[0], 4), inner, np.repeat(time_s[-1], 4)])
        velocity = make_lsq_spline(time_s, self.position_m, knots, k=3).derivative()(time_s)
        moving = velocity[np.linalg.norm(velocity, axis=1) > _MOVING_MPS]
        return float(np.maximum(wrap_angle(np.diff(np.arctan2(moving[:, 1], moving[:, 0]))), 0).sum())


@dataclass(frozen=True, kw_only=True)
class LaneUse:
    """Lane changes of a motion, and how well it is centred."""

    changes_left: int
    changes_right: int
    centre_distance_m: float  # from the lane's centreline, mean over the steps on a lane; NaN if there are none


def lane_use(graph: LaneGraph, motion: MeasuredMotion) -> LaneUse:
    """Counts lane changes and measures the mean distance from the centreline of the lane at each step."""
    lane = graph.lane_at(motion.position_m, motion.heading_rad)
    left, right = lane_changes_of(graph, lane)
    distance = [
        np.abs(project(motion.position_m[lane == used], graph.lanes.centrelines[int(used)].astype(np.float64))[1])
        for used in np.unique(lane[lane >= 0])
    ]
    centre = float(np.concatenate(distance).mean()) if distance else float("nan")
    return LaneUse(changes_left=left, changes_right=right, centre_distance_m=centre)


def lane_changes_of(graph: LaneGraph, lane: Int[np.ndarray, " F"]) -> tuple[int, int]:
    """Numbers of lane changes to the left and to the right.

    Args:
        graph: the lane graph of the map.
        lane: index of the lane at each step; -1: none. Steps within junctions are skipped, as lanes overlap there.
    """
    clear = lane[(lane >= 0) & ~graph.lanes.in_junction[lane]].tolist()
    changes = [graph.change(a, b) for a, b in pairwise(clear) if a != b]
    return changes.count(1), changes.count(-1)
