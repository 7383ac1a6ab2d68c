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
    advance = np.zeros(len(ego))  # along the lane since the step before; 0 off the lanes and where the lane changes
    row_at = np.array([rows[0] if rows else -1 for rows in location.rows])
    for row in np.unique(row_at[row_at >= 0]):
        along = project(ego.centre_m, lanes.centrelines[row])[0]
        stays = (row_at[1:] == row) & (row_at[:-1] == row)
        advance[1:][stays] = np.diff(along)[stays]
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
        statistics=(boolean("speed_limit", not over.any()),),
        evidence=(Evidence(time_s=float(ego.time_s[worst]), description=description),) if over.any() else (),
        series=over,
        applicable=bool(np.isfinite(limits_mps).any()),
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
