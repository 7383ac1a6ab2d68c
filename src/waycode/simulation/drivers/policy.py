"""The policy of `LatentDriver`: keep the last plan, slow down or stop. None of it is in the paper.

Axes: K trajectories, M cost levels. If an objective has several levels, the first is the danger: 0 is safe.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from waycode.driving import Tracker, Trajectory
from waycode.objectives import AtFaultCollision, BaseObjective, Candidates, Setting
from waycode.objectives.driving import TOTAL_WEIGHT
from waycode.scene.geometry import arclengths, interpolate

_MIN_PATH_M = 0.5  # a shorter trajectory counts as standing


@dataclass(frozen=True, kw_only=True)
class PolicyConfig:
    """Switches and parameters of the policy."""

    keep_last_plan: bool = True  # the last plan competes with the new ones; it is refined instead of a search
    keep_bonus: float = 0.02 * TOTAL_WEIGHT  # cost by which a new plan must be better than the last one
    slowing_mps2: tuple[float, ...] = (1.5, 3.0)  # decelerations of slowed variants of the first two plans; () for none
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

    @property
    def num_steps(self) -> int:
        """Number of simulated steps."""
        return round(self.policy.horizon_s / self.setting.scene.dt_s)

    def levels(self, trajectories: Sequence[Trajectory]) -> Float[np.ndarray, "K M"]:
        """Costs of the simulated trajectories, in lexicographic order."""
        setting, num_steps = self.setting, self.num_steps
        reference = Trajectory.stack([trajectory.of_length(num_steps + 1) for trajectory in trajectories])
        start, dt_s = setting.state.repeated(len(trajectories)), setting.scene.dt_s
        simulated = self.tracker.follow(start, reference, num_steps=num_steps, vehicle=setting.vehicle, dt_s=dt_s)
        candidates = Candidates.of_trajectory(Trajectory.of_states([start, *simulated]), setting)
        return self.objective.levels(candidates).cpu().double().numpy()

    @staticmethod
    def is_safe(levels: Float[np.ndarray, "K M"]) -> Bool[np.ndarray, " K"]:
        """Whether the danger level is 0; costs of a single level have none and count as safe."""
        return levels[:, 0] == 0 if levels.shape[1] > 1 else np.ones(len(levels), np.bool_)

    def stop(self, braking_mps2: float) -> Trajectory:
        """Brakes to standstill."""
        setting = self.setting
        return self.tracker.emergency_stop(
            setting.state, vehicle=setting.vehicle, dt_s=setting.scene.dt_s, braking_mps2=braking_mps2
        )


def choose_trajectory(
    plans: Sequence[Trajectory], last: Trajectory | None, evaluate: Evaluator
) -> tuple[Trajectory, int | None]:
    """The best of the last trajectory, the new plans and their slowed variants; a stop if none of them is safe.

    Args:
        plans: new plans that the gate accepts, best first; may be empty.
        last: the rest of the last trajectory; None if it may not be kept.
        evaluate: simulates and evaluates trajectories.

    Returns:
        The trajectory, and its index among `plans` if it is one of them.
    """
    policy = evaluate.policy
    kept = [] if last is None else [last]
    unchanged = [*kept, *plans]
    if not unchanged:
        return evaluate.stop(policy.stopping_mps2), None
    dt_s = evaluate.setting.scene.dt_s
    pool = unchanged + [
        slowed_trajectory(trajectory, braking_mps2=braking, dt_s=dt_s)
        for trajectory in unchanged[:2]
        for braking in policy.slowing_mps2
    ]
    levels = evaluate.levels(pool)
    if kept:
        levels[0, -1] -= policy.keep_bonus
    if policy.stop and not evaluate.is_safe(levels).any():
        stops = [evaluate.stop(policy.stopping_mps2), evaluate.stop(policy.emergency_mps2)]
        stop_levels = evaluate.levels(stops)
        soon = float(AtFaultCollision(horizon_s=policy.horizon_s).cost_at(np.array(policy.emergency_s)))
        count = 1 if stop_levels[0, 0] < soon else 2  # brake hard only if a comfortable stop is not enough
        pool, levels = [*pool, *stops[:count]], np.concatenate([levels, stop_levels[:count]])
    best = min(range(len(pool)), key=lambda index: tuple(levels[index].tolist()))
    is_new = len(kept) <= best < len(unchanged)
    return pool[best], best - len(kept) if is_new else None


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
