"""The policy of `LatentDriver`: keep the last plan, slow down or stop. None of it is in the paper.

Axes: K trajectories, M cost levels. If an objective has several levels, the first is the danger: 0 is safe.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float

from waycode.driving import Tracker, Trajectory, VehicleState
from waycode.driving.tracker import lateral_error_m, steer_against_errors
from waycode.objectives import AtFaultCollision, BaseObjective, Candidates, Setting
from waycode.objectives.driving import TOTAL_WEIGHT
from waycode.scene.geometry import arclengths, forward, interpolate
from waycode.simulation.drivers.pdm_score import PdmScore

_MIN_PATH_M = 0.5  # a shorter trajectory counts as standing
_STEERING_GAIN, _STEERING_FADING_S = 4.0, 0.4  # see `steer_against_errors`; of nuPlan's tracker


@dataclass(frozen=True, kw_only=True)
class PolicyConfig:
    """Switches and parameters of the policy."""

    keep_last_plan: bool = True  # the last plan competes with the new ones
    keep_bonus: float = 0.02 * TOTAL_WEIGHT  # cost by which a new plan must be better than the last one
    slowing_mps2: tuple[float, ...] = (1.5, 3.0)  # decelerations of slowed variants; () for none
    steers_against_errors: bool = True  # give the tracker references that make it drive nearer to the plans ...
    steering_tolerance_m: float = 0.2  # ... if it would get farther to the side of them than this
    stop: bool = True  # brake if no trajectory is safe
    stopping_mps2: float = 3.9  # deceleration of a comfortable stop, within nuPlan's comfort bound
    emergency_mps2: float = 6.0  # deceleration if a comfortable stop collides within `emergency_s`
    emergency_s: float = 2.0
    replan_steps: int = 1  # search at every n-th step; in between, follow the last plan while it is safe
    horizon_s: float = 4.0  # duration over which trajectories are simulated and compared

    def __post_init__(self) -> None:
        if self.replan_steps < 1:
            raise ValueError(f"replan_steps is {self.replan_steps}, expected at least 1")


@dataclass(frozen=True, kw_only=True)
class Evaluator:
    """Simulates trajectories with the tracker and evaluates the resulting drives."""

    objective: BaseObjective
    setting: Setting  # the ego and its surroundings
    tracker: Tracker
    policy: PolicyConfig
    steers: bool = False  # steer against the tracker's errors where it does not keep to a plan

    @property
    def num_steps(self) -> int:
        """Number of simulated steps."""
        return round(self.policy.horizon_s / self.setting.scene.dt_s)

    def judge(self, trajectory: Trajectory) -> "Judged":
        """K trajectories [K, T] with the costs of what the tracker makes of them."""
        setting, num_samples = self.setting, self.num_steps + 1
        start = setting.state.repeated(len(trajectory.heading_rad))
        plan = trajectory.at_rear_axle(setting.vehicle).of_length(num_samples)
        drive = self._followed(start, plan)
        error_m = np.abs(lateral_error_m(plan, drive)).max(axis=1)
        reference, steered = plan, np.zeros(len(error_m), np.bool_)
        if self.steers:
            reference, drive, steered = self._steered(plan, drive, error_m)
        return Judged(
            trajectory=trajectory,
            reference=reference.at_centre(setting.vehicle),
            steered=steered,
            error_m=error_m,
            drive=drive,
            levels=self._levels([drive]),
        )

    def _followed(self, start: VehicleState, reference: Trajectory) -> Trajectory:
        """What the tracker makes of K references."""
        simulated = self.tracker.follow(
            start, reference, num_steps=self.num_steps, vehicle=self.setting.vehicle, dt_s=self.setting.scene.dt_s
        )
        return Trajectory.of_states([start, *simulated])

    def _steered(
        self, plan: Trajectory, drive: Trajectory, error_m: Float[np.ndarray, " K"]
    ) -> tuple[Trajectory, Trajectory, Bool[np.ndarray, " K"]]:
        """References that steer against the tracker's errors, where that brings it nearer to the plan.

        Args:
            plan: K plans of the rear axle, as long as the drives.
            drive: what the tracker makes of them.
            error_m: how far it gets to the side of them.

        Returns:
            The references, what the tracker makes of them, and which are not the plan.
        """
        steered = error_m > self.policy.steering_tolerance_m
        if not steered.any():
            return plan, drive, steered
        wanted = plan.select(steered)
        reference = steer_against_errors(
            wanted,
            drive.select(steered),
            gain=_STEERING_GAIN,
            fading_s=_STEERING_FADING_S,
            dt_s=self.setting.scene.dt_s,
        )
        nearer_drive = self._followed(self.setting.state.repeated(int(steered.sum())), reference)
        nearer = np.abs(lateral_error_m(wanted, nearer_drive)).max(axis=1) < error_m[steered]
        steered[steered] = nearer
        return (
            plan.with_rows(steered, reference.select(nearer)),
            drive.with_rows(steered, nearer_drive.select(nearer)),
            steered,
        )

    def levels_together(self, pool: "Sequence[Judged]") -> Float[np.ndarray, "K M"]:
        """The costs of all trajectories of a pool; those that depend on the other candidates are computed again."""
        if isinstance(self.objective, PdmScore):
            return self._levels([judged.drive for judged in pool])
        return np.concatenate([judged.levels for judged in pool])

    def _levels(self, drives: Sequence[Trajectory]) -> Float[np.ndarray, "K M"]:
        together = Trajectory(
            position_m=np.concatenate([drive.position_m for drive in drives]),
            heading_rad=np.concatenate([drive.heading_rad for drive in drives]),
            speed_mps=np.concatenate([drive.speed_mps for drive in drives]),
            point="rear-axle",
        )
        candidates = Candidates.of_trajectory(together, self.setting)
        return self.objective.levels(candidates).cpu().double().numpy()

    def stop(self, braking_mps2: float) -> Trajectory:
        """Brakes to standstill."""
        setting = self.setting
        return self.tracker.emergency_stop(
            setting.state, vehicle=setting.vehicle, dt_s=setting.scene.dt_s, braking_mps2=braking_mps2
        )

    def stop_along_route(self, braking_mps2: float) -> Trajectory:
        """Brakes to standstill beside the route's path, at the offset from it that the ego has now."""
        straight, path = self.stop(braking_mps2), self.setting.road.path
        start_m = straight.position_m[:1]
        travelled_m = ((straight.position_m - start_m) * forward(straight.heading_rad)).sum(axis=-1)
        along_m, offset_m = path.project(start_m)
        position_m, heading_rad = path.pose_at(along_m + travelled_m, np.repeat(offset_m, len(straight)))
        return replace(straight, position_m=position_m, heading_rad=heading_rad)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """K trajectories, what the tracker makes of them, and the costs of that."""

    trajectory: Trajectory  # [K, T], what is to be driven
    reference: Trajectory  # [K, S], what the tracker was given to drive it, over the policy's horizon
    steered: Bool[np.ndarray, " K"]  # which references steer against the tracker's errors
    error_m: Float[np.ndarray, " K"]  # how far the tracker gets to the side of a trajectory without that
    drive: Trajectory  # [K, S] of the rear axle
    levels: Float[np.ndarray, "K M"]  # in lexicographic order

    def best(self, count: int) -> tuple[Trajectory, ...]:
        """The `count` trajectories of the lowest costs, or all, best first."""
        order = sorted(range(len(self.levels)), key=lambda index: tuple(self.levels[index].tolist()))
        return tuple(self.trajectory.select(index) for index in order[:count])

    def select(self, chosen: Bool[np.ndarray, " K"]) -> "Judged":
        """Some of them."""
        return Judged(
            trajectory=self.trajectory.select(chosen),
            reference=self.reference.select(chosen),
            steered=self.steered[chosen],
            error_m=self.error_m[chosen],
            drive=self.drive.select(chosen),
            levels=self.levels[chosen],
        )

    def choice(self, row: int) -> "Choice":
        """One of them, to drive."""
        plan = self.trajectory.select(row)
        trajectory = self.reference.select(row) if self.steered[row] else plan
        return Choice(trajectory=trajectory, plan=plan, error_m=float(self.error_m[row]))


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What a step has chosen."""

    trajectory: Trajectory  # for the tracker
    plan: Trajectory  # what is to be driven: `trajectory`, unless that steers against the tracker's errors
    error_m: float = 0.0  # how far the tracker would get to the side of `plan` if it were given that


def choose_trajectory(proposals: Sequence[Judged], last: Trajectory | None, evaluate: Evaluator) -> Choice:
    """The best of the last plan, the proposals and slowed variants; a stop if none of them is safe.

    Args:
        proposals: new trajectories with their costs; may be empty.
        last: the rest of the last plan; None if it may not be kept.
        evaluate: simulates and evaluates trajectories.
    """
    policy = evaluate.policy
    kept = [] if last is None else [evaluate.judge(_with_slowed(last, evaluate))]
    pool = [*kept, *proposals]
    if not pool:
        stopping = evaluate.stop(policy.stopping_mps2)
        return Choice(trajectory=stopping, plan=stopping)
    if proposals and policy.slowing_mps2 and not is_safe(evaluate.levels_together(pool)).any():
        pool.append(evaluate.judge(_with_slowed(best_of(proposals, evaluate).plan, evaluate)))
    if policy.stop and not is_safe(evaluate.levels_together(pool)).any():
        as_it_is = replace(evaluate, steers=False)  # the reference of a stop runs behind the ego, or backwards
        stop, hard_stop = (
            as_it_is.judge(Trajectory.stack([evaluate.stop(braking), evaluate.stop_along_route(braking)]))
            for braking in (policy.stopping_mps2, policy.emergency_mps2)
        )
        soon = float(AtFaultCollision(horizon_s=policy.horizon_s).cost_at(np.array(policy.emergency_s)))
        pool += (
            [stop] if stop.levels[:, 0].min() < soon else [stop, hard_stop]
        )  # hard only if a comfortable one is too late
    return best_of(pool, evaluate, first_bonus=policy.keep_bonus if kept else 0.0)


def _with_slowed(trajectory: Trajectory, evaluate: Evaluator) -> Trajectory:
    """A trajectory, and its variants that brake along the same path."""
    dt_s = evaluate.setting.scene.dt_s
    slowed = [slowed_trajectory(trajectory, braking_mps2=each, dt_s=dt_s) for each in evaluate.policy.slowing_mps2]
    return Trajectory.stack([trajectory, *slowed])


def best_of(pool: Sequence[Judged], evaluate: Evaluator, *, first_bonus: float = 0.0) -> Choice:
    """The trajectory of the lowest cost, the first of equal ones; the first of all costs less by `first_bonus`."""
    levels = evaluate.levels_together(pool)
    levels[0, -1] -= first_bonus
    best = min(range(len(levels)), key=lambda index: tuple(levels[index].tolist()))
    for judged in pool:
        if best < len(judged.levels):
            return judged.choice(best)
        best -= len(judged.levels)
    raise AssertionError("every index belongs to a group of the pool")


def is_safe(levels: Float[np.ndarray, "K M"]) -> Bool[np.ndarray, " K"]:
    """Whether the danger level is 0; costs of a single level have none and count as safe."""
    return levels[:, 0] == 0 if levels.shape[1] > 1 else np.ones(len(levels), np.bool_)


def slowed_trajectory(trajectory: Trajectory, *, braking_mps2: float, dt_s: float) -> Trajectory:
    """The same path with constant braking to standstill; `dt_s` is the time between samples."""
    time_s = np.arange(len(trajectory)) * dt_s
    along = arclengths(trajectory.position_m)
    if along[-1] < _MIN_PATH_M:
        return trajectory
    start = max(0.0, float(trajectory.speed_mps[0]))
    moving_s = np.minimum(time_s, start / braking_mps2)
    at = np.minimum(start * moving_s - braking_mps2 * moving_s**2 / 2, along)
    return Trajectory(
        position_m=interpolate(trajectory.position_m, at),
        heading_rad=np.interp(at, along, np.unwrap(trajectory.heading_rad)),
        speed_mps=np.minimum(np.maximum(0.0, start - braking_mps2 * time_s), trajectory.speed_mps),
        point=trajectory.point,
    )
