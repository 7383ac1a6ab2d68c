"""A trajectory as the encoder wants it: in the agent's frame, padded to the model's horizon."""

import numpy as np
from jaxtyping import Bool, Float, Float32

from waycode.planner.errors import PlannerError
from waycode.scene import Scene
from waycode.scene.frames import rotate

Future = tuple[Float32[np.ndarray, "T 2"], Bool[np.ndarray, " T"]]


def recorded_future(scene: Scene, agent: int, *, num_steps: int) -> Future:
    """What the agent did after the current step."""
    steps = slice(scene.current_step + 1, scene.current_step + 1 + num_steps)
    valid = scene.tracks.valid[agent, steps]
    if not valid.any():
        name = scene.tracks.ids[agent]
        raise PlannerError(f"road user {name!r} of scene {scene.id!r} has no recorded future: give a trajectory")
    return in_agent_frame(scene, agent, scene.tracks.position_m[agent, steps], valid, num_steps=num_steps)


def in_agent_frame(
    scene: Scene,
    agent: int,
    position_m: Float[np.ndarray, "t 2"],
    valid: Bool[np.ndarray, " t"] | None,
    *,
    num_steps: int,
) -> Future:
    """Positions in the scene frame at the steps after the current one, seen from the agent; zero where not valid."""
    position_m = np.asarray(position_m, np.float64)
    count = len(position_m)
    known = np.ones(count, np.bool_) if valid is None else valid
    if position_m.shape != (count, 2) or known.shape != (count,) or count > num_steps:
        raise PlannerError(
            f"the trajectory has shape {list(position_m.shape)} and validity {list(known.shape)}, "
            f"expected [t, 2] and [t] with at most {num_steps} steps"
        )
    if not known.any() or not np.isfinite(position_m[known]).all():
        raise PlannerError("the trajectory has no valid step, or one whose position is not a number: expected numbers")
    tracks, now = scene.tracks, scene.current_step
    offset = np.where(known[:, None], position_m, 0) - tracks.position_m[agent, now]
    future, seen = np.zeros((num_steps, 2), np.float32), np.zeros(num_steps, np.bool_)
    future[:count] = rotate(offset, -float(tracks.heading_rad[agent, now])) * known[:, None]
    seen[:count] = known
    return future, seen
