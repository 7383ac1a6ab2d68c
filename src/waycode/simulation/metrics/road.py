"""Keeping to the road: on the drivable area, in the direction of traffic, within the speed limit. Axes: T steps."""

import numpy as np
from jaxtyping import Float

from waycode.driving.road_surface import OUTSIDE_TOLERANCE_M, LanePolygons
from waycode.scene.geometry import project
from waycode.simulation.history import EgoStates
from waycode.simulation.metrics.results import Evidence, MetricResult, Statistic, StatisticKind, boolean
from waycode.simulation.metrics.whereabouts import Whereabouts

DIRECTION_WINDOW_S = 1.0
TOLERATED_BACKWARD_M, WORST_BACKWARD_M = 2.0, 6.0
WORST_OVERSPEED_MPS = 2.23


def drivable_area(ego: EgoStates, where: Whereabouts) -> MetricResult:
    """0 if any corner of the ego is ever `OUTSIDE_TOLERANCE_M` or more off the drivable area."""
    if where.outside_m is None:
        return MetricResult(name="drivable_area", score=1.0, judged=False)
    furthest = where.outside_m.max(axis=1)
    worst = int(furthest.argmax())
    kept = bool(furthest[worst] < OUTSIDE_TOLERANCE_M)
    what = f"a corner is {furthest[worst]:.2f} m off the drivable area"
    return MetricResult(
        name="drivable_area",
        score=float(kept),
        statistics=(boolean("drivable_area", kept),),
        evidence=() if kept else (Evidence(time_s=float(ego.time_s[worst]), what=what),),
        series=furthest,
    )


def driving_direction(ego: EgoStates, where: Whereabouts, *, index: LanePolygons) -> MetricResult:
    """1, 0.5 or 0 by how far the ego drives against its lane's direction within a second."""
    advance = _advance_per_step_m(ego, where, index)
    window = max(1, int(DIRECTION_WINDOW_S / _dt_s(ego) + 1e-6))
    total = np.concatenate([np.zeros(window + 1), np.cumsum(advance)])
    within_window = total[window + 1 :] - total[: -window - 1]  # this step and the `window` steps before it
    worst = int(within_window.argmin())
    backward_m = max(0.0, -float(within_window[worst]))
    score = 1.0 if backward_m < TOLERATED_BACKWARD_M else 0.5 if backward_m < WORST_BACKWARD_M else 0.0
    what = f"drove {backward_m:.1f} m against the lane's direction within {DIRECTION_WINDOW_S:.0f} s"
    return MetricResult(
        name="driving_direction",
        score=score,
        statistics=(
            Statistic(kind=StatisticKind.VALUE, name="driving_direction", value=score),
            Statistic(kind=StatisticKind.MIN, name="least_advance_m", value=-backward_m),
        ),
        evidence=() if score == 1 else (Evidence(time_s=float(ego.time_s[worst]), what=what),),
        series=within_window,
        judged=any(where.driven),
    )


def _advance_per_step_m(ego: EgoStates, where: Whereabouts, index: LanePolygons) -> Float[np.ndarray, " T"]:
    """Movement along the lane since the last step; 0 off the lanes and where the lane changes."""
    advance = np.zeros(len(ego))
    lane = [rows[0] if rows else None for rows in where.driven]
    for row in sorted({row for row in lane if row is not None}):
        on = np.array([here == row for here in lane])
        along = project(ego.centre_m, index.centrelines[row])[0]
        both = on[1:] & on[:-1]
        advance[1:][both] = np.diff(along)[both]
    return advance


def speed_limit(ego: EgoStates, where: Whereabouts, *, index: LanePolygons) -> MetricResult:
    """1 minus the mean overspeed as a share of `WORST_OVERSPEED_MPS`."""
    limits_mps = _limits_mps(where, index)
    over = np.maximum(0.0, ego.speed_mps - limits_mps)
    worst = int(over.argmax())
    duration_s = float(ego.time_s[-1] - ego.time_s[0])
    loss = over.sum() * _dt_s(ego) / (WORST_OVERSPEED_MPS * duration_s) if duration_s > 0 else 0.0
    what = f"drove up to {over[worst]:.1f} m/s over the limit, for {(over > 0).sum() * _dt_s(ego):.1f} s"
    return MetricResult(
        name="speed_limit",
        score=float(max(0.0, 1.0 - loss)),
        statistics=(boolean("speed_limit", not over.any()),),
        evidence=(Evidence(time_s=float(ego.time_s[worst]), what=what),) if over.any() else (),
        series=over,
        judged=bool(np.isfinite(limits_mps).any()),
    )


def _limits_mps(where: Whereabouts, index: LanePolygons) -> Float[np.ndarray, " T"]:
    """The limit where the ego is; infinite off the lanes and where none is known."""
    known = {rows: _limit_mps(rows, index) for rows in set(where.driven)}
    return np.array([known[rows] for rows in where.driven])


def _limit_mps(rows: tuple[int, ...], index: LanePolygons) -> float:
    """A lane's own limit; in a junction the highest of the lanes before and after it (nuPlan)."""
    numbers = [index.lane[row] for row in rows[:1]]
    if rows and index.in_junction[rows[0]]:
        inside, graph = [index.lane[row] for row in rows], index.lanes.graph
        around = graph.beyond_junction(inside, graph.successors, within=index.lane)
        around |= graph.beyond_junction(inside, graph.predecessors, within=index.lane)
        numbers = list(around) or inside
    if not numbers or not index.lanes.speed_limit_known[numbers].all():
        return float(np.inf)
    return float(index.lanes.speed_limit_mps[numbers].max())


def _dt_s(ego: EgoStates) -> float:
    return float(np.diff(ego.time_s).mean()) if len(ego) > 1 else 1.0
