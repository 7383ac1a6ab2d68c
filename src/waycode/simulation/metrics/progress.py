"""Progress of the ego along the expert's route. Axes: T steps, N blocks of the route.

A block is a set of parallel lanes. The route is the blocks that the expert drives through; distance along it is
measured on the lane by which the expert first enters each block.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from waycode.driving.road_surface import LanePolygons
from waycode.scene.geometry import arclengths, project
from waycode.simulation.history import EgoHistory
from waycode.simulation.metrics.location import lanes_driven
from waycode.simulation.metrics.results import Evidence, MetricResult, Statistic, StatisticKind, boolean

_LEAST_PROGRESS_M = 2.0  # nuPlan: shorter distances count as this much, longer ones backwards as no progress
_LEAST_RATIO = 0.2  # nuPlan: with a smaller share of the expert's progress the whole score is 0


@dataclass(frozen=True, kw_only=True)
class ProgressAlongRoute:
    """Distances along the expert's route from the start of the run to its end."""

    ego_m: float
    expert_m: float

    @property
    def ratio(self) -> float:
        """The ego's share of the expert's progress, in [0, 1]."""
        if self.ego_m < -_LEAST_PROGRESS_M:
            return 0.0
        return min(1.0, max(self.ego_m, _LEAST_PROGRESS_M) / max(self.expert_m, _LEAST_PROGRESS_M))


@dataclass(frozen=True, kw_only=True)
class _Block:
    rows: frozenset[int]  # of LanePolygons
    baseline_m: Float[np.ndarray, "_ 2"]

    @property
    def length_m(self) -> float:
        return float(arclengths(self.baseline_m)[-1])

    def along_m(self, point_m: Float[np.ndarray, " 2"]) -> float:
        """Arclength of the baseline's point nearest to a point."""
        return float(project(point_m[None], self.baseline_m)[0][0])


def measure_progress(ego: EgoHistory, expert: EgoHistory, *, lanes: LanePolygons) -> ProgressAlongRoute | None:
    """Progress of ego and expert along the expert's route; None if the expert was on no lane.

    Args:
        ego: the ego over T steps.
        expert: the recorded ego.
        lanes: the lanes around both.
    """
    blocks = _route_blocks(expert, lanes)
    if not blocks:
        return None
    return ProgressAlongRoute(ego_m=_advance_m(ego, blocks, lanes), expert_m=_advance_m(expert, blocks, lanes))


def ego_progress(ego: EgoHistory, progress: ProgressAlongRoute | None) -> MetricResult:
    """The ego's share of the expert's progress."""
    if progress is None:
        statistics = (
            Statistic(kind=StatisticKind.VALUE, name="expert_progress_m", value=0.0),
            Statistic(kind=StatisticKind.RATIO, name="progress_ratio", value=1.0),
        )
        return MetricResult(name="progress", score=1.0, statistics=statistics, applicable=False)
    measured = (
        Statistic(kind=StatisticKind.VALUE, name="expert_progress_m", value=progress.expert_m),
        Statistic(kind=StatisticKind.VALUE, name="ego_progress_m", value=progress.ego_m),
        Statistic(kind=StatisticKind.RATIO, name="progress_ratio", value=progress.ratio),
    )
    description = f"got {progress.ego_m:.1f} m along the route, the expert got {progress.expert_m:.1f} m"
    evidence = (Evidence(time_s=float(ego.time_s[-1]), description=description),) if progress.ratio < 1 else ()
    return MetricResult(name="progress", score=progress.ratio, statistics=measured, evidence=evidence)


def making_progress(ego: EgoHistory, progress: ProgressAlongRoute | None) -> MetricResult:
    """1 if the ego makes at least a fifth of the expert's progress, else 0."""
    if progress is None:
        return MetricResult(name="making_progress", score=1.0, applicable=False)
    made = progress.ratio >= _LEAST_RATIO
    description = f"made {progress.ratio:.0%} of the expert's progress, at least {_LEAST_RATIO:.0%} is required"
    return MetricResult(
        name="making_progress",
        score=float(made),
        statistics=(boolean("making_progress", made),),
        evidence=() if made else (Evidence(time_s=float(ego.time_s[-1]), description=description),),
    )


def _route_blocks(expert: EgoHistory, lanes: LanePolygons) -> list[_Block]:
    """The blocks that the expert drives through, in order."""
    blocks: list[_Block] = []
    before: tuple[int, ...] = ()
    for rows in lanes_driven(expert, lanes):
        if not rows or set(before) & set(rows):
            continue
        before, members = rows, _block_rows(lanes, rows[0])
        if not blocks or blocks[-1].rows != members:
            blocks.append(_Block(rows=members, baseline_m=lanes.centrelines[rows[0]]))
    return blocks


def _block_rows(lanes: LanePolygons, row: int) -> frozenset[int]:
    """A lane's parallel lanes; in a junction all lanes from the same block to the same block, as nuPlan groups them."""
    graph, row_of = lanes.lanes.graph, {lane: row for row, lane in enumerate(lanes.lane)}

    def beside(lane: int) -> frozenset[int]:
        return frozenset(graph.parallel(lane, within=row_of))

    if not lanes.in_junction[row]:
        return frozenset(row_of[lane] for lane in beside(lanes.lane[row]))

    def ends(lane: int) -> tuple[frozenset[int], frozenset[int]]:
        sides = (graph.predecessors[lane], graph.successors[lane])
        from_lanes, to_lanes = (frozenset[int]().union(*(beside(other) for other in side)) for side in sides)
        return from_lanes, to_lanes

    wanted = ends(lanes.lane[row])
    junction = [other for other in np.flatnonzero(lanes.in_junction).tolist() if ends(lanes.lane[other]) == wanted]
    return frozenset(junction) | {row}


def _advance_m(ego: EgoHistory, blocks: list[_Block], lanes: LanePolygons) -> float:
    """Distance along the route from the centre's first position to its last one on the route.

    The ego stays in its block or goes on to a later one; steps beside the route do not count.
    """
    inside = lanes.inside(ego.centre_m)
    within: Bool[np.ndarray, "N T"] = np.stack([inside[list(block.rows)].any(axis=0) for block in blocks])
    current, total = 0, 0.0
    at_m = blocks[0].along_m(ego.centre_m[0])  # on the current block
    for step in range(1, len(ego)):
        later = np.flatnonzero(within[current:, step])
        if not len(later):
            continue
        following = current + int(later[0])
        here_m = blocks[following].along_m(ego.centre_m[step])
        if following == current:
            total += here_m - at_m
        else:
            skipped = _skipped_m(blocks[current : following + 1])
            joint_m = blocks[following].along_m(blocks[current].baseline_m[-1])
            total += blocks[current].length_m - at_m + here_m - joint_m + skipped
        current, at_m = following, here_m
    return total


def _skipped_m(blocks: list[_Block]) -> float:
    """The length of the blocks between the first and the last, each between its neighbours' ends."""
    lengths_m = (
        block.along_m(after.baseline_m[0]) - block.along_m(before.baseline_m[-1])
        for before, block, after in zip(blocks, blocks[1:], blocks[2:], strict=False)
    )
    return sum(lengths_m, start=0.0)
