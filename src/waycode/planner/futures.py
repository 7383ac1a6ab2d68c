"""Trajectories as the trajectory encoder expects them: in the agent's frame, padded to the model's horizon.

Axes: t given steps, T steps of the model.
"""

import numpy as np
from jaxtyping import Bool, Float, Float32

from waycode.objectives import Setting
from waycode.planner.plan import PlannerError
from waycode.scene.frames import rotate


def recorded_future(setting: Setting, *, num_steps: int) -> tuple[Float32[np.ndarray, "t 2"], Bool[np.ndarray, " t"]]:
    """The agent's recorded positions after the current step, at most `num_steps`, and where it was observed."""
    scene, tracks = setting.scene, setting.scene.tracks
    steps = slice(scene.current_step + 1, scene.current_step + 1 + num_steps)
    position_m, valid = tracks.position_m[setting.agent, steps], tracks.valid[setting.agent, steps]
    if not valid.any():
        raise PlannerError(
            f"agent {setting.agent_id!r} of scene {scene.id!r} has no recorded future: give a trajectory"
        )
    return position_m, valid


def encoder_input(
    setting: Setting,
    position_m: Float[np.ndarray, "t 2"] | None,
    valid: Bool[np.ndarray, " t"] | None,
    *,
    num_steps: int,
) -> tuple[Float32[np.ndarray, "T 2"], Bool[np.ndarray, " T"]]:
    """A trajectory, or the recorded future if `position_m` is None; see `in_agent_frame`."""
    if position_m is None:
        position_m, valid = recorded_future(setting, num_steps=num_steps)
    return in_agent_frame(position_m, valid, setting=setting, num_steps=num_steps)


def in_agent_frame(
    position_m: Float[np.ndarray, "t 2"], valid: Bool[np.ndarray, " t"] | None, *, setting: Setting, num_steps: int
) -> tuple[Float32[np.ndarray, "T 2"], Bool[np.ndarray, " T"]]:
    """A trajectory in the agent's frame at the current step, padded to `num_steps`, and which steps count.

    Args:
        position_m: positions in the scene frame at the steps after the current one.
        valid: which positions count; None: all.
        setting: the agent.
        num_steps: T.
    """
    position_m, count = np.asarray(position_m, np.float64), len(position_m)
    known = np.ones(count, np.bool_) if valid is None else valid
    if position_m.shape != (count, 2) or known.shape != (count,) or count > num_steps:
        raise PlannerError(
            f"the trajectory has shape {list(position_m.shape)} and validity {list(known.shape)}, "
            f"expected [t, 2] and [t] with at most {num_steps} steps"
        )
    if not known.any() or not np.isfinite(position_m[known]).all():
        raise PlannerError("the trajectory has no valid step, or a valid one that is not finite: expected numbers")
    start_m = setting.scene.tracks.position_m[setting.agent, setting.scene.current_step]
    offset_m = np.where(known[:, None], position_m, 0) - start_m
    future_m, future_valid = np.zeros((num_steps, 2), np.float32), np.zeros(num_steps, np.bool_)
    future_m[:count] = rotate(offset_m, -setting.start_heading_rad) * known[:, None]
    future_valid[:count] = known
    return future_m, future_valid
