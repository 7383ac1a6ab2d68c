"""Compliance with the road: drivable area, driving direction, speed limit. Axes: T steps."""

import numpy as np
from jaxtyping import Float

from waycode.driving.road_surface import OUTSIDE_TOLERANCE_M, LanePolygons
from waycode.scene.geometry import project
from waycode.simulation.history import EgoHistory
from waycode.simulation.metrics.location import EgoLocation
from waycode.simulation.metrics.results import Evidence, MetricResult, Statistic, StatisticKind, boolean

# nuPlan's bounds.
_DIRECTION_WINDOW_S = 1.0
_HALF_SCORE_BACKWARD_M, _NO_SCORE_BACKWARD_M = 2.0, 6.0
_NO_SCORE_OVERSPEED_MPS = 2.23  # mean overspeed at which the score is 0


def drivable_area_compliance(ego: EgoHistory, location: EgoLocation) -> MetricResult:
    """0 if any corner of the ego is ever `OUTSIDE_TOLERANCE_M` or more off the drivable area, else 1."""
    if location.outside_m is None:
        return MetricResult(name="drivable_area", score=1.0, applicable=False)
    furthest = location.outside_m.max(axis=1)
    worst = int(furthest.argmax())
    kept = bool(furthest[worst] < OUTSIDE_TOLERANCE_M)
    description = f"a corner is {furthest[worst]:.2f} m off the drivable area"
    return MetricResult(
        name="drivable_area",
        score=float(kept),
        statistics=(boolean("drivable_area", kept),),
        evidence=() if kept else (Evidence(time_s=float(ego.time_s[worst]), description=description),),
        series=furthest,
    )


def driving_direction_compliance(ego: EgoHistory, location: EgoLocation, *, lanes: LanePolygons) -> MetricResult:
    """1 if the ego drives less than 2 m against its lane's direction within a second, 0.5 below 6 m, else 0.

    Args:
        ego: the ego over T steps.
        location: its lanes.
        lanes: the lanes that the rows of `location` refer to.
    """
    advance = _advance_along_lane_m(ego, location, lanes)
    window = max(1, int(_DIRECTION_WINDOW_S / _dt_s(ego) + 1e-6))
    total = np.concatenate([np.zeros(window + 1), np.cumsum(advance)])
    within_window = total[window + 1 :] - total[: -window - 1]  # this step and the `window` steps before it
    worst = int(within_window.argmin())
    backward_m = max(0.0, -float(within_window[worst]))
    score = 1.0 if backward_m < _HALF_SCORE_BACKWARD_M else 0.5 if backward_m < _NO_SCORE_BACKWARD_M else 0.0
    description = f"drove {backward_m:.1f} m against the lane's direction within {_DIRECTION_WINDOW_S:.0f} s"
    return MetricResult(
        name="driving_direction",
        score=score,
        statistics=(
            Statistic(kind=StatisticKind.VALUE, name="driving_direction", value=score),
            Statistic(kind=StatisticKind.MIN, name="least_advance_m", value=-backward_m),
        ),
        evidence=() if score == 1 else (Evidence(time_s=float(ego.time_s[worst]), description=description),),
        series=within_window,
        applicable=any(location.rows),
    )


def _advance_along_lane_m(ego: EgoHistory, location: EgoLocation, lanes: LanePolygons) -> Float[np.ndarray, " T"]:
    """How far the ego advances along its lane since the step before.

    As in nuPlan it is 0 off the lanes, at the first two steps on a new lane, and at the very start of a lane; what is
    advanced off a lane counts if the ego returns to it.
    """
    advance = np.zeros(len(ego))
    row = location.rows[0][0] if location.rows[0] else -1
    at_m: float | None = None
    for step, rows in enumerate(location.rows):
        if not rows:
            continue
        if rows[0] != row:
            row, at_m = rows[0], None
            continue
        here_m = float(project(ego.centre_m[step : step + 1], lanes.centrelines[row])[0][0])
        advance[step] = here_m - at_m if at_m is not None and here_m > 0 else 0.0
        at_m = here_m
    return advance


def speed_limit_compliance(ego: EgoHistory, location: EgoLocation, *, lanes: LanePolygons) -> MetricResult:
    """1 minus the mean overspeed as a share of 2.23 m/s, at least 0. Without a known limit there is no overspeed.

    Args:
        ego: the ego over T steps.
        location: its lanes.
        lanes: the lanes that the rows of `location` refer to.
    """
    limit_of = {rows: _limit_mps(rows, lanes) for rows in set(location.rows)}
    limits_mps: Float[np.ndarray, " T"] = np.array([limit_of[rows] for rows in location.rows])
    over = np.maximum(0.0, ego.speed_mps - limits_mps)
    worst = int(over.argmax())
    duration_s = float(ego.time_s[-1] - ego.time_s[0])
    loss = over.sum() * _dt_s(ego) / (_NO_SCORE_OVERSPEED_MPS * duration_s) if duration_s > 0 else 0.0
    description = f"drove up to {over[worst]:.1f} m/s over the limit, for {(over > 0).sum() * _dt_s(ego):.1f} s"
    return MetricResult(
        name="speed_limit",
        score=float(max(0.0, 1.0 - loss)),
        statistics=_overspeed_statistics(ego, over),
        evidence=(Evidence(time_s=float(ego.time_s[worst]), description=description),) if over.any() else (),
        series=over,
        applicable=bool(np.isfinite(limits_mps).any()),
    )


def _overspeed_statistics(ego: EgoHistory, over_mps: Float[np.ndarray, " T"]) -> tuple[Statistic, ...]:
    """Number of times over the limit, the greatest and least of their peaks, and the mean (nuPlan)."""
    if not over_mps.any():
        return (boolean("speed_limit", True),)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], over_mps > 0, [False]]).astype(np.int8))).reshape(-1, 2)
    peaks = np.array([over_mps[first:end].max() for first, end in edges])
    means = np.array([over_mps[first:end].mean() for first, end in edges])
    # A time over the limit lasts until the first step that keeps it; one that begins at the last step lasts no time.
    ends = np.minimum(edges[:, 1], len(ego) - 1)
    duration_s = ego.time_s[ends] - ego.time_s[edges[:, 0]]
    mean = float((means * duration_s).sum() / duration_s.sum()) if duration_s.sum() > 0 else float(means.mean())
    return (
        Statistic(kind=StatisticKind.COUNT, name="times_over_limit", value=float(len(edges))),
        Statistic(kind=StatisticKind.MAX, name="max_overspeed_mps", value=float(peaks.max())),
        Statistic(kind=StatisticKind.MIN, name="min_overspeed_mps", value=float(peaks.min())),
        Statistic(kind=StatisticKind.MEAN, name="mean_overspeed_mps", value=mean),
        boolean("speed_limit", False),
    )


def _limit_mps(rows: tuple[int, ...], lanes: LanePolygons) -> float:
    """The limit of the first row's lane; in a junction the highest of the lanes before and after it (nuPlan).

    Infinite off the lanes and where a limit is not known.
    """
    numbers = [lanes.lane[row] for row in rows[:1]]
    if rows and lanes.in_junction[rows[0]]:
        inside, graph = [lanes.lane[row] for row in rows], lanes.lanes.graph
        around = graph.beyond_junction(inside, graph.successors, within=lanes.lane)
        around |= graph.beyond_junction(inside, graph.predecessors, within=lanes.lane)
        numbers = list(around) or inside
    if not numbers or not lanes.lanes.speed_limit_known[numbers].all():
        return float(np.inf)
    return float(lanes.lanes.speed_limit_mps[numbers].max())


def _dt_s(ego: EgoHistory) -> float:
    return float(np.diff(ego.time_s).mean()) if len(ego) > 1 else 1.0
