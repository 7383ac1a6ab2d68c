"""How far the ego gets along the expert's route. Axes: T steps, B blocks of the route.

A block is a set of parallel lanes; the route is the blocks that the expert drives through, and distance along it is
measured on the lane by which the expert first enters each block.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from waycode.driving.road_surface import LanePolygons
from waycode.scene.geometry import project
from waycode.simulation.history import EgoStates
from waycode.simulation.metrics.results import Evidence, MetricResult, Statistic, StatisticKind, boolean
from waycode.simulation.metrics.whereabouts import driven_lanes, line_length

LEAST_PROGRESS_M = 2.0  # an expert that moves less sets no task; and so far may noise move an ego backwards
LEAST_RATIO = 0.2


@dataclass(frozen=True, kw_only=True)
class Progress:
    ego_m: float
    expert_m: float

    @property
    def ratio(self) -> float:
        """The ego's share of the expert's progress, in [0, 1]."""
        if self.ego_m < -LEAST_PROGRESS_M:
            return 0.0
        return min(1.0, max(self.ego_m, LEAST_PROGRESS_M) / max(self.expert_m, LEAST_PROGRESS_M))


@dataclass(frozen=True, kw_only=True)
class _Block:
    lanes: frozenset[int]  # rows of the index
    baseline_m: Float[np.ndarray, "_ 2"]
    before_m: float  # distance along the route of the start of the baseline


def progress_along_route(ego: EgoStates, expert: EgoStates, *, index: LanePolygons) -> Progress | None:
    """Progress of both along the expert's route; None if the expert was on no lane."""
    blocks = _route_blocks(index, driven_lanes(index, expert))
    if not blocks:
        return None
    return Progress(ego_m=_advance_m(ego, blocks, index=index), expert_m=_advance_m(expert, blocks, index=index))


def progress(ego: EgoStates, found: Progress | None) -> MetricResult:
    """The ego's share of the expert's progress along the expert's route."""
    if found is None:
        return MetricResult(name="progress", score=1.0, judged=False)
    statistics = (
        Statistic(kind=StatisticKind.VALUE, name="expert_progress_m", value=found.expert_m),
        Statistic(kind=StatisticKind.VALUE, name="ego_progress_m", value=found.ego_m),
        Statistic(kind=StatisticKind.RATIO, name="progress_ratio", value=found.ratio),
    )
    what = f"got {found.ego_m:.1f} m along the route, the expert got {found.expert_m:.1f} m"
    evidence = (Evidence(time_s=float(ego.time_s[-1]), what=what),) if found.ratio < 1 else ()
    return MetricResult(name="progress", score=found.ratio, statistics=statistics, evidence=evidence)


def making_progress(ego: EgoStates, found: Progress | None) -> MetricResult:
    """1 if the ego gets at least a fifth as far as the expert, else 0."""
    if found is None:
        return MetricResult(name="making_progress", score=1.0, judged=False)
    made = found.ratio >= LEAST_RATIO
    what = f"made {found.ratio:.0%} of the expert's progress, {LEAST_RATIO:.0%} are asked for"
    return MetricResult(
        name="making_progress",
        score=float(made),
        statistics=(boolean("making_progress", made),),
        evidence=() if made else (Evidence(time_s=float(ego.time_s[-1]), what=what),),
    )


def _route_blocks(index: LanePolygons, driven: tuple[tuple[int, ...], ...]) -> list[_Block]:
    """The blocks that the expert drives through, in order."""
    blocks: list[_Block] = []
    place = {lane: row for row, lane in enumerate(index.lane)}
    for rows in driven:
        if not rows or (blocks and blocks[-1].lanes & set(rows)):
            continue
        baseline = index.centrelines[rows[0]]
        before_m = 0.0
        if blocks:
            last = blocks[-1]
            joint_m = float(project(last.baseline_m[-1:], baseline)[0][0])
            before_m = last.before_m + line_length(last.baseline_m) - joint_m
        parallel = index.lanes.graph.parallel(index.lane[rows[0]], within=place)
        lanes = frozenset(place[lane] for lane in parallel)
        blocks.append(_Block(lanes=lanes, baseline_m=baseline, before_m=before_m))
    return blocks


def _advance_m(ego: EgoStates, blocks: list[_Block], *, index: LanePolygons) -> float:
    """How far along the route the ego's centre gets from where it started.

    It stays in its block or goes on to a later one; what it drives beside the route does not count.
    """
    inside = index.inside(ego.centre_m)
    within: Bool[np.ndarray, "B T"] = np.stack([inside[list(block.lanes)].any(axis=0) for block in blocks])
    along = np.stack([block.before_m + project(ego.centre_m, block.baseline_m)[0] for block in blocks])
    start = reached = float(along[0, 0])
    current = 0
    for step in range(1, len(ego)):
        later = np.flatnonzero(within[current:, step])
        if len(later):
            current += int(later[0])
            reached = float(along[current, step])
    return reached - start
