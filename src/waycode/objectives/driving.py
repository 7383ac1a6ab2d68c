"""nuPlan's driving criteria as objectives: at-fault collisions, the road, red lights, progress, limits, comfort.

`DRIVING_OBJECTIVE`, the default of the closed-loop driver, combines these terms. Each evaluates the first `horizon_s`
seconds of the candidates in numpy (`Candidates.trajectory`), and common intermediate results are shared. None has a
gradient; the differentiable counterparts are `RouteFollowing`, `Collision`, `RoadEdge` and `Comfort`.
Axes: K candidates, S samples (0 is now), r red lights.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from waycode.driving.collisions import TTC_LOOKS, Conflicts, SafetyMargin, find_conflicts
from waycode.driving.forecast import Forecast, lane_forecast
from waycode.driving.road import STOP_LINE_MARGIN_M
from waycode.driving.road_surface import OUTSIDE_TOLERANCE_M
from waycode.driving.trajectory import Trajectory
from waycode.driving.vehicle import VehicleState
from waycode.objectives.base import BaseObjective
from waycode.objectives.candidates import Candidates
from waycode.objectives.comfort import comfort_verdict
from waycode.objectives.setting import ObjectiveError, Setting
from waycode.objectives.verdict import Verdict
from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import forward
from waycode.scene.kinematics import (
    ACCELERATION_WINDOW,
    COMFORT_BOUNDS,
    JERK_WINDOW,
    MIN_STEPS,
    YAW_RATE_WINDOW,
    derivative_matrix,
    motion,
)

# nuPlan's score as a cost: its multipliers first, then its weighted mean, and a reserve to the road's edge.
DRIVING_OBJECTIVE = (
    "at-fault-collision + off-road + red-light + route-end then "
    "5 * route-progress + 5 * time-to-collision + 4 * speed-limit + 2 * comfort-limits(bound_share=0.8) + "
    "4 * road-reserve + 5 * room-to-brake"
)
TOTAL_WEIGHT = 16.0  # sum of nuPlan's weights; the reserve to the road's edge and the room to brake are ours

_OFF_ROAD_RESERVE_M = 0.02  # of nuPlan's tolerance: how far a corner may get between two samples
_OFF_ROAD_STEP_M = 0.005  # farther out than now, for an agent that has used up the tolerance but for the reserve
_SPEED_AT_COLLISION_WEIGHT = 1e-3  # so small that a collision one step later is always better
_MAX_OVERSPEED_MPS = 2.23  # nuPlan's mean overspeed at which the metric is 0
_MIN_PROGRESS_GOAL_M = 5.0  # progress is measured against at least this distance
_FREE_ROAD_ACCELERATION_MPS2 = 1.5  # PDM-Closed's IDM
_MAX_RED_LIGHT_BRAKING_MPS2 = 3.5  # a red light that takes harder braking does not count
_RED_LIGHT_TOLERANCE_M = 1.0  # subtracted from the braking distance
_LATER_BRAKING_MPS2 = 2.5  # a plan must leave room to stop after its horizon without braking harder
_LEADER_BRAKING_MPS2 = 3.5  # how hard the road user ahead may brake then
_LEAST_GAP_M = 0.1  # in which a stop after the horizon is computed
_LEADER_RAD = np.radians(45.0)  # a road user in a direction that differs less from the path's drives along it
_FIT_REACH = JERK_WINDOW // 2 + ACCELERATION_WINDOW // 2  # steps on which a jerk depends, to each side
PAST_STATES = 2 * _FIT_REACH  # states before now that comfort depends on; a drive with fewer has begun less long ago
_FULL_MARGIN_MPS = 4.0  # speed from which on the margin ahead is the whole one
_LEAST_PROGRESS = 0.2  # nuPlan's ratio above which a drive makes progress
_SHOWN_MPS = 0.05  # half of the last digit that sentences show


@dataclass(frozen=True, kw_only=True)
class _OnRoute:
    """Candidates over the horizon, in the coordinates of the agent's route."""

    rear_axle: Trajectory  # [K, S]
    along_m: Float[np.ndarray, "K S"]  # arclength of the box's centre along the route's path
    offset_m: Float[np.ndarray, "K S"]  # its offset from the path, left positive
    index: Int[np.ndarray, "K S"]  # nearest point of the path

    @property
    def num_steps(self) -> int:
        return len(self.rear_axle) - 1


def _on_route(candidates: Candidates, horizon_s: float) -> _OnRoute:
    setting, num_steps = candidates.setting, round(horizon_s / candidates.dt_s)
    if not MIN_STEPS <= num_steps <= candidates.num_steps:
        raise ObjectiveError(
            f"the driving horizon is {horizon_s:g} s, expected {MIN_STEPS * candidates.dt_s:g} to "
            f"{candidates.num_steps * candidates.dt_s:g} s"
        )
    rear_axle = candidates.trajectory.samples(slice(0, num_steps + 1)).at_rear_axle(setting.vehicle)
    path = setting.road.path
    along, offset = path.project(rear_axle.at_centre(setting.vehicle).position_m)
    return _OnRoute(rear_axle=rear_axle, along_m=along, offset_m=offset, index=path.index_at(along))


def _forecast(setting: Setting, num_steps: int) -> Forecast[np.ndarray]:
    """The road users near the agent: as the setting knows them, or along their lanes (who brakes goes on braking)."""
    known = setting.known_forecast
    if known is None:
        return lane_forecast(setting.scene, setting.agent, num_steps=num_steps, near=setting.state, braking=True)
    if known.position_m.shape[1] <= num_steps:
        raise ObjectiveError(
            f"the forecast of the others has {known.position_m.shape[1]} samples, expected at least {num_steps + 1}"
        )
    return known


def _reachable_m(setting: Setting, num_steps: int) -> float:
    """Distance that the agent can travel along its route on an empty road, at the target speeds."""
    road, dt_s, end_m = setting.road, setting.scene.dt_s, _end_of_centre_m(setting)
    along = start = float(road.path.project(setting.state.rear_axle_m)[0][0])
    speed, change = max(0.0, float(setting.state.speed_mps[0])), dt_s * _FREE_ROAD_ACCELERATION_MPS2
    for _ in range(num_steps):
        target = float(road.speed_mps[road.path.index_at(np.array(along))])
        along += dt_s * speed
        speed = min(speed + change, max(target, speed - change))
    return min(along, max(end_m - setting.vehicle.rear_axle_to_centre_m, start)) - start


def _past_motion(setting: Setting) -> tuple[Float[np.ndarray, " p"], Float[np.ndarray, " p"]]:
    """Speed of the rear axle and heading at the observed steps before now, without a gap, for as long as jerk needs."""
    tracks, now, agent = setting.scene.tracks, setting.scene.current_step, setting.agent
    first = max(0, now - MIN_STEPS)
    unobserved = np.flatnonzero(~tracks.valid[agent, first:now])
    steps = slice(first + (int(unobserved[-1]) + 1 if len(unobserved) else 0), now)
    heading = tracks.heading_rad[agent, steps].astype(np.float64)
    velocity = np.stack([tracks.vx_mps[agent, steps], tracks.vy_mps[agent, steps]], axis=-1).astype(np.float64)
    return (velocity * forward(heading)).sum(axis=-1), heading  # the rear axle moves along the heading only


def _share(values: Float[np.ndarray, "K S"], bounds: tuple[float, float]) -> Float[np.ndarray, " K"]:
    """The extreme of each row as a share of its bound."""
    least, greatest = bounds
    return np.asarray(np.maximum(values.max(axis=1) / greatest, values.min(axis=1) / least))


def _continued_motion(
    drive: Trajectory, setting: Setting, past: tuple[VehicleState, ...]
) -> dict[str, Float[np.ndarray, "K S"]]:
    """nuPlan's comfort quantities of a drive so far and of K continuations, at the steps that these still change.

    As in nuPlan's score, accelerations are those of the states, turning adds arm * (yaw rate^2 + yaw acceleration) at
    the centre of the box, and simulated states have no lateral acceleration.

    Args:
        drive: K continuations by the bicycle model, of the rear axle; sample 0 is now.
        setting: the agent now.
        past: its states before now.
    """
    dt_s, count = setting.scene.dt_s, len(drive.heading_rad)
    turn = np.diff(drive.heading_rad, axis=1) / dt_s  # the model moves on with the yaw rate of the sample before
    ahead_mps2 = np.diff(drive.speed_mps, axis=1) / dt_s  # and changes its speed by the acceleration of the sample
    so_far = [*past, setting.state]
    acceleration, yaw_rate, heading = (
        np.concatenate([np.tile([float(getattr(state, name)[0]) for state in so_far], (count, 1)), later], axis=1)
        for name, later in (
            ("acceleration_mps2", ahead_mps2),
            ("yaw_rate_radps", np.concatenate([turn[:, 1:], turn[:, -1:]], axis=1)),
            ("heading_rad", drive.heading_rad[:, 1:]),
        )
    )
    heading = np.unwrap(heading, axis=1)
    yaw_acceleration = np.diff(yaw_rate, axis=1, prepend=yaw_rate[:, :1]) / dt_s
    at_centre = acceleration + setting.vehicle.rear_axle_to_centre_m * (yaw_rate**2 + yaw_acceleration)

    def fit(values: Float[np.ndarray, "K n"], window: int, order: int, degree: int = 2) -> Float[np.ndarray, "K n"]:
        matrix = derivative_matrix(values.shape[1], window=window, dt_s=dt_s, order=order, degree=degree)
        return np.asarray(values @ matrix.T)

    longitudinal = fit(at_centre, ACCELERATION_WINDOW, 0)
    quantities = {
        "longitudinal_acceleration_mps2": longitudinal,
        "jerk_mps3": fit(fit(np.abs(acceleration), ACCELERATION_WINDOW, 0), JERK_WINDOW, 1),
        "longitudinal_jerk_mps3": fit(longitudinal, JERK_WINDOW, 1),
        "yaw_rate_radps": fit(heading, YAW_RATE_WINDOW, 1),
        "yaw_acceleration_radps2": fit(heading, YAW_RATE_WINDOW, 2, 3),
    }
    settled = 0 if len(past) < PAST_STATES else len(past) - _FIT_REACH
    return {name: values[:, settled:] for name, values in quantities.items()}


def _end_of_centre_m(setting: Setting) -> float:
    """Arclength of the box's centre when the front bumper is at the end of the route or of the map."""
    return setting.road.end_m - setting.vehicle.length_m / 2


def _braking_later(speed_mps: Float[np.ndarray, "K 1"], room_m: Float[np.ndarray, "K n"]) -> Float[np.ndarray, "K n"]:
    """0 if a stop in this room is gentle; 1 if it takes twice that deceleration or more."""
    needed_mps2 = np.maximum(speed_mps, 0) ** 2 / (2 * np.maximum(room_m, _LEAST_GAP_M))
    return np.asarray(np.clip(needed_mps2 / _LATER_BRAKING_MPS2 - 1, 0.0, 1.0))


def _room_left(hard: float) -> str:
    """A result of `_braking_later` in words."""
    return "leaves no room to brake" if hard == 1 else "leaves little room to brake" if hard else "leaves room to brake"


def _conflicts(candidates: Candidates, horizon_s: float, margin: SafetyMargin) -> Conflicts:
    setting, drive = candidates.setting, candidates.shared(_on_route, horizon_s)
    path, vehicle = setting.road.path, setting.vehicle
    return find_conflicts(
        drive.rear_axle,
        setting.shared(_forecast, drive.num_steps + TTC_LOOKS[-1]),
        vehicle=vehicle,
        in_one_lane=np.abs(drive.offset_m) + vehicle.width_m / 2 <= path.half_width_m[drive.index],
        in_junction=path.in_junction[drive.index],
        margin=margin,
        dt_s=candidates.dt_s,
    )


def _outside_m(candidates: Candidates, horizon_s: float) -> Float[np.ndarray, "K S"]:
    """How far the outermost corner is off the drivable area at every sample; 0 on a map without such an area.

    With every second sample, a plan was safe at one step of the drive and off the road at the next.
    """
    drive, setting = candidates.shared(_on_route, horizon_s).rear_axle, candidates.setting
    if setting.road.drivable is None:
        return np.zeros(drive.heading_rad.shape)
    corners = drive.corners_m(setting.vehicle)  # [K, S, 4, 2]
    outside = setting.road.drivable.outside_m(corners.reshape(-1, 2)).reshape(corners.shape[:3])
    return np.asarray(outside.max(axis=-1))


@dataclass(frozen=True, kw_only=True)
class _DrivingTerm(BaseObjective):
    horizon_s: float = 4.0  # evaluated part of the candidates; PDM-Closed's horizon

    def _costs(self, values: np.ndarray, candidates: Candidates) -> Float[Tensor, " K"]:
        """Costs in float64: a sum of terms is rounded once, when candidates are compared."""
        return torch.from_numpy(np.asarray(values, np.float64)).to(candidates.position_m.device)

    def met(self, candidates: Candidates) -> list[Verdict]:
        """The verdict of each cost, if the term has no better one."""
        return [self._verdict(cost) for cost in self(candidates).tolist()]

    def _verdict(self, cost: float) -> Verdict:
        return Verdict()


@dataclass(frozen=True, kw_only=True)
class _ConflictTerm(_DrivingTerm):
    margin_ahead_m: float = 1.0  # boxes of others are longer by this at both ends when collisions are tested
    margin_beside_m: float = 0.2  # and wider by this at both sides
    standing_margin_m: float = 0.3  # `margin_ahead_m` of an agent that stands; it grows with the speed up to 4 m/s

    def _conflicts(self, candidates: Candidates) -> Conflicts:
        return candidates.shared(_conflicts, self.horizon_s, self._margin(candidates.setting))

    def _margin(self, setting: Setting) -> SafetyMargin:
        """The margin ahead is for errors in a braking distance. A slow agent has less of them, and needs the space: one
        that has stopped close behind another could never pass it."""
        share = min(abs(float(setting.state.speed_mps[0])) / _FULL_MARGIN_MPS, 1.0)
        standing_m = min(self.standing_margin_m, self.margin_ahead_m)
        ahead_m = standing_m + share * (self.margin_ahead_m - standing_m)
        return SafetyMargin(ahead_m=ahead_m, beside_m=self.margin_beside_m)


@dataclass(frozen=True, kw_only=True)
class AtFaultCollision(_ConflictTerm):
    """Cause no collision: 0 without one at fault, else 1 to 2, the sooner the higher, plus a little for the speed."""

    def __call__(self, candidates: Candidates) -> Float[Tensor, " K"]:
        drive, first = candidates.shared(_on_route, self.horizon_s), self._conflicts(candidates).first_step
        when = np.minimum(first, drive.num_steps).astype(np.int64)
        speed = drive.rear_axle.speed_mps[np.arange(len(when)), when]
        cost = self.cost_at(np.minimum(first, drive.num_steps) * candidates.dt_s) + _SPEED_AT_COLLISION_WEIGHT * speed
        return self._costs(np.where(np.isfinite(first), cost, 0.0), candidates)

    def met(self, candidates: Candidates) -> list[Verdict]:
        """Satisfied without a collision at fault within the horizon."""
        return [
            Verdict(satisfied=False, sentence=f"collides at fault after {step * candidates.dt_s:.1f} s")
            if np.isfinite(step)
            else Verdict(satisfied=True, sentence=f"no collision at fault within {self.horizon_s:g} s")
            for step in self._conflicts(candidates).first_step.tolist()
        ]

    def cost_at(self, time_s: Float[np.ndarray, "*K"]) -> Float[np.ndarray, "*K"]:
        """The cost of a collision at a time, without the part for the speed."""
        return np.asarray(1 + (1 - np.minimum(time_s / self.horizon_s, 1.0)))


@dataclass(frozen=True, kw_only=True)
class OffRoad(_DrivingTerm):
    """Stay on the drivable area: the share of time with a corner off it; 0 for an agent that starts off the road.

    An agent that starts within the last 2 cm of what nuPlan tolerates is off the road as soon as it gets farther out.
    """

    def __call__(self, candidates: Candidates) -> Float[Tensor, " K"]:
        outside_m = candidates.shared(_outside_m, self.horizon_s)
        start_m = outside_m[:, :1]
        kept_m = np.minimum(start_m + _OFF_ROAD_STEP_M, OUTSIDE_TOLERANCE_M)
        off = outside_m >= np.maximum(OUTSIDE_TOLERANCE_M - _OFF_ROAD_RESERVE_M, kept_m)
        return self._costs(np.where(start_m[:, 0] >= OUTSIDE_TOLERANCE_M, 0.0, off.mean(axis=1)), candidates)

    def _verdict(self, cost: float) -> Verdict:
        told = f"off the road for {cost * self.horizon_s:.1f} of {self.horizon_s:g} s" if cost else "stays on the road"
        return Verdict(satisfied=cost == 0, sentence=told)


@dataclass(frozen=True, kw_only=True)
class RoadReserve(_DrivingTerm):
    """Keep a reserve to being off the road: how far a corner gets off the drivable area at most, as a share of 0.3 m.

    `OffRoad` alone is a step at 0.3 m: a plan that just keeps to it has no way left when the next plans differ.
    """

    def __call__(self, candidates: Candidates) -> Float[Tensor, " K"]:
        farthest_m = candidates.shared(_outside_m, self.horizon_s).max(axis=1)
        return self._costs(np.minimum(farthest_m / OUTSIDE_TOLERANCE_M, 1.0), candidates)

    def _verdict(self, cost: float) -> Verdict:
        told = f"a corner gets {cost * OUTSIDE_TOLERANCE_M:.2f} m off the road" if cost < 1 else "leaves the road"
        return Verdict(satisfied=cost < 1, sentence=told if cost else "stays on the road with all corners")


@dataclass(frozen=True, kw_only=True)
class RoomToBrake(_DrivingTerm):
    """Leave room to brake for the road user ahead at the end of the horizon, when that may brake too.

    0 if braking gently is enough, 1 if it takes twice that deceleration. The other terms end with the horizon: they let
    a fast agent get near a slower one before they notice.
    """

    standing_gap_m: float = 1.0  # to the road user ahead, when both have stopped

    def __call__(self, candidates: Candidates) -> Float[Tensor, " K"]:
        drive, setting = candidates.shared(_on_route, self.horizon_s), candidates.setting
        path, vehicle, last = setting.road.path, setting.vehicle, drive.num_steps
        others = setting.shared(_forecast, last + TTC_LOOKS[-1])
        along_m, offset_m = path.project(others.position_m[:, last])
        turned = np.abs(wrap_angle(others.heading_rad[:, last] - path.heading_rad[path.index_at(along_m)]))
        leads = (turned < _LEADER_RAD) & others.valid[:, last] & (along_m > drive.along_m[:, -1:])  # [K, J]
        leads &= np.abs(offset_m - drive.offset_m[:, -1:]) < (others.width_m + vehicle.width_m) / 2
        gap_m = along_m - drive.along_m[:, -1:] - (others.length_m + vehicle.length_m) / 2 - self.standing_gap_m
        stops_m = (others.velocity_mps[:, last] ** 2).sum(axis=-1) / (2 * _LEADER_BRAKING_MPS2)
        hard = _braking_later(drive.rear_axle.speed_mps[:, -1:], np.maximum(gap_m, 0.0) + stops_m)
        return self._costs((leads * hard).max(axis=1, initial=0.0), candidates)

    def _verdict(self, cost: float) -> Verdict:
        return Verdict(satisfied=cost < 1, sentence=f"{_room_left(cost)} for the road user ahead")


@dataclass(frozen=True, kw_only=True)
class _StopTerm(_DrivingTerm):
    """Stop at a place, if a stop is possible: 1 for passing it, less for a plan after which braking must be hard.

    Without the second part, a fast agent would notice a place to stop only when it is too near: in 4 s at 25 m/s it
    gets hardly farther than it needs to brake.
    """

    _place: ClassVar[str]
    _passed: ClassVar[str]  # sentences
    _not_passed: ClassVar[str]

    @abstractmethod
    def _stops_m(self, setting: Setting) -> Float[np.ndarray, " r"]:
        """Arclengths along the route's path."""

    def __call__(self, candidates: Candidates) -> Float[Tensor, " K"]:
        passed, hard = self._passed_and_hard(candidates)
        return self._costs(np.where(passed, 1.0, hard), candidates)

    def met(self, candidates: Candidates) -> list[Verdict]:
        """Satisfied by a candidate that passes no such place and leaves room to brake for it."""
        verdicts = []
        for passed, hard in zip(*self._passed_and_hard(candidates), strict=True):
            told = f"{self._passed if passed else self._not_passed} within {self.horizon_s:g} s"
            if hard and not passed:
                told = f"{_room_left(hard)} for {self._place} after {self.horizon_s:g} s"
            verdicts.append(Verdict(satisfied=bool(hard < 1 and not passed), sentence=told))
        return verdicts

    def _passed_and_hard(self, candidates: Candidates) -> tuple[Bool[np.ndarray, " K"], Float[np.ndarray, " K"]]:
        """Whether a place is passed at which a stop is possible, and how hard braking before it must be."""
        drive, setting = candidates.shared(_on_route, self.horizon_s), candidates.setting
        stop_m = self._stops_m(setting)[None]  # [1, r]
        half, speed = setting.vehicle.length_m / 2, float(drive.rear_axle.speed_mps[0, 0])
        gap = stop_m - (drive.along_m[:, :1] + half)  # [K, r] from the front bumper
        braking_m = speed**2 / (2 * _MAX_RED_LIGHT_BRAKING_MPS2)
        stoppable = (gap > -STOP_LINE_MARGIN_M) & (np.maximum(gap, 0.0) >= braking_m - _RED_LIGHT_TOLERANCE_M)
        limit_m = stop_m + STOP_LINE_MARGIN_M - half
        passed = stoppable & (drive.along_m.max(axis=1)[:, None] > limit_m)
        hard = _braking_later(drive.rear_axle.speed_mps[:, -1:], limit_m - drive.along_m[:, -1:])
        return passed.any(axis=1), (stoppable * hard).max(axis=1, initial=0.0)


@dataclass(frozen=True, kw_only=True)
class RedLight(_StopTerm):
    """Stop at red lights: 1 for crossing the stop line of a red light on the route although a stop is possible."""

    _place: ClassVar[str] = "a red light"
    _passed: ClassVar[str] = "crosses the stop line of a red light"
    _not_passed: ClassVar[str] = "crosses no red light"

    def _stops_m(self, setting: Setting) -> Float[np.ndarray, " r"]:
        return setting.road.red_stop_m(setting.scene)


@dataclass(frozen=True, kw_only=True)
class RouteEnd(_StopTerm):
    """Stop at the end of the route or of the known map: 1 for driving past it although a stop is possible."""

    _place: ClassVar[str] = "the end of the route"
    _passed: ClassVar[str] = "drives past the end of the route"
    _not_passed: ClassVar[str] = "stays before the end of the route"

    def _stops_m(self, setting: Setting) -> Float[np.ndarray, " r"]:
        end_m = setting.road.end_m
        return np.array([end_m]) if np.isfinite(end_m) else np.zeros(0)


@dataclass(frozen=True, kw_only=True)
class RouteProgress(_DrivingTerm):
    """Make progress along the route: 1 minus progress as a share of what a free road allows; deviation costs progress.

    Unlike `RouteFollowing`, it follows the route's path, not any of its parallel lanes.
    """

    deviation_weight: float = 10.0  # metres of progress that a metre of mean deviation is worth
    free_width_m: float = 0.5  # offset from the path without a cost

    def __call__(self, candidates: Candidates) -> Float[Tensor, " K"]:
        drive = candidates.shared(_on_route, self.horizon_s)
        deviation = np.maximum(np.abs(drive.offset_m) - self.free_width_m, 0).mean(axis=1)
        last_m = np.minimum(drive.along_m[:, -1], np.maximum(_end_of_centre_m(candidates.setting), drive.along_m[:, 0]))
        progress = last_m - drive.along_m[:, 0] - self.deviation_weight * deviation
        goal_m = max(_MIN_PROGRESS_GOAL_M, candidates.setting.shared(_reachable_m, drive.num_steps))
        return self._costs(1 - np.minimum(progress / goal_m, 1.0), candidates)

    def _verdict(self, cost: float) -> Verdict:
        told = f"makes {100 * (1 - cost):.0f} % of the progress that a free road allows"
        return Verdict(satisfied=1 - cost >= _LEAST_PROGRESS, sentence=told)


@dataclass(frozen=True, kw_only=True)
class TimeToCollision(_ConflictTerm):
    """Keep more than 0.9 s to a collision at constant velocity: 0 if kept at all times, else 1.

    The margins only decide which collisions are not at fault: the road users hit in these do not count.
    """

    def __call__(self, candidates: Candidates) -> Float[Tensor, " K"]:
        return self._costs(1.0 - self._conflicts(candidates).keeps_time_to_collision, candidates)

    def _verdict(self, cost: float) -> Verdict:
        told = "comes within 0.9 s of a collision" if cost else "keeps more than 0.9 s to a collision"
        return Verdict(satisfied=cost == 0, sentence=told)


@dataclass(frozen=True, kw_only=True)
class SpeedLimit(_DrivingTerm):
    """Keep to the speed limit: mean overspeed as a share of 2.23 m/s, at most 1; 0 where no limit is known."""

    def __call__(self, candidates: Candidates) -> Float[Tensor, " K"]:
        over = self._overspeed_mps(candidates).mean(axis=1) / _MAX_OVERSPEED_MPS
        return self._costs(np.minimum(over, 1.0), candidates)

    def met(self, candidates: Candidates) -> list[Verdict]:
        """Satisfied if no limit is exceeded by more than 0.05 m/s."""
        return [
            Verdict(satisfied=False, sentence=f"up to {over:.1f} m/s above the speed limit")
            if over > _SHOWN_MPS
            else Verdict(satisfied=True, sentence="keeps to the speed limit")
            for over in self._overspeed_mps(candidates).max(axis=1).tolist()
        ]

    def _overspeed_mps(self, candidates: Candidates) -> Float[np.ndarray, "K S"]:
        drive, path = candidates.shared(_on_route, self.horizon_s), candidates.setting.road.path
        limit = np.where(path.limit_known, path.limit_mps, np.inf)[drive.index]
        return np.asarray(np.maximum(drive.rear_axle.speed_mps - limit, 0))


@dataclass(frozen=True, kw_only=True)
class ComfortLimits(_DrivingTerm):
    """Keep to nuPlan's comfort bounds: 0 within a share of all of them, above it half the largest share, at most 1.

    The observed past counts where it makes the next steps uncomfortable. Unlike nuPlan's metric, which is a step of 1
    at the bound, the cost has a slope that guides a search. With `Setting.known_past`, the quantities are nuPlan's of
    the drive so far and its continuation: a score of the first second, too, depends on what is driven after it.
    """

    bound_share: float = 1.0  # of the bounds; below 1, a reserve for what differences of speeds smooth away

    def __call__(self, candidates: Candidates) -> Float[Tensor, " K"]:
        worst = np.max(list(self._shares(candidates).values()), axis=0)
        return self._costs(np.where(worst > self.bound_share, np.clip(worst / 2, 0.0, 1.0), 0.0), candidates)

    def met(self, candidates: Candidates) -> list[Verdict]:
        """Satisfied within all bounds."""
        shares = self._shares(candidates)
        return [
            comfort_verdict({name: float(share[index]) for name, share in shares.items()})
            for index in range(len(candidates))
        ]

    def _shares(self, candidates: Candidates) -> dict[str, Float[np.ndarray, " K"]]:
        """The extreme of each quantity as a share of its bound."""
        drive = candidates.shared(_on_route, self.horizon_s).rear_axle
        if candidates.setting.known_past is not None:
            moves_of = _continued_motion(drive, candidates.setting, candidates.setting.known_past)
            return {name: _share(values, COMFORT_BOUNDS[name]) for name, values in moves_of.items()}
        past_mps, past_rad = (np.tile(past, (len(candidates), 1)) for past in candidates.setting.shared(_past_motion))
        shares = {name: np.zeros(len(candidates)) for name in COMFORT_BOUNDS}
        # With the past, a change of plans shows; without it, the fit is that of a run that starts now.
        for before_mps, before_rad in ((past_mps, past_rad), (past_mps[:, :0], past_rad[:, :0])):
            speed = np.concatenate([before_mps, drive.speed_mps], axis=1)
            heading = np.concatenate([before_rad, drive.heading_rad], axis=1)
            moves = motion(speed[..., None] * forward(heading), heading, dt_s=candidates.dt_s)
            for name, bounds in COMFORT_BOUNDS.items():
                values = getattr(moves, name)[:, before_mps.shape[1] :]  # what has happened cannot be avoided
                shares[name] = np.maximum(shares[name], _share(values, bounds))
        return shares
