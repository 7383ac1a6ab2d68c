"""Which road user is planned for."""

import numpy as np

from waycode.planner.errors import PlannerError
from waycode.scene import Scene

MAX_LISTED = 12  # a crowded scene has hundreds of road users: an error names the first of them


def choose_agent(scene: Scene, agent: int | str | None) -> int:
    """The index of a track that is observed now: by index, by id, or else the ego, or the first track to predict."""
    tracks = scene.tracks
    if agent is None:
        return _default(scene)
    if isinstance(agent, str):
        if agent not in tracks.ids:
            raise PlannerError(f"scene {scene.id!r} has no road user {agent!r}; observed now: {_listed(scene)}")
        agent = tracks.ids.index(agent)
    if not 0 <= agent < len(tracks):
        raise PlannerError(f"scene {scene.id!r} has no track {agent}: expected 0 to {len(tracks) - 1}")
    if not tracks.valid[agent, scene.current_step]:
        raise PlannerError(
            f"road user {tracks.ids[agent]!r} of scene {scene.id!r} is not observed at the current step; "
            f"observed now: {_listed(scene)}"
        )
    return agent


def recorded_agents(scene: Scene) -> list[int]:
    """The tracks to predict that are seen now and at least once afterwards: those whose future has a code."""
    valid = scene.tracks.valid
    seen = valid[:, scene.current_step] & valid[:, scene.current_step + 1 :].any(axis=1)
    return [int(track) for track in scene.tracks.to_predict if seen[track]]


def _default(scene: Scene) -> int:
    tracks = scene.tracks
    first = [] if tracks.ego_index is None else [tracks.ego_index]
    for track in [*first, *tracks.to_predict]:
        if tracks.valid[track, scene.current_step]:
            return int(track)
    raise PlannerError(
        f"scene {scene.id!r} has neither an ego nor a track to predict that is observed now: "
        f"name a road user; observed now: {_listed(scene)}"
    )


def _listed(scene: Scene) -> str:
    """The ids of the road users that can be planned for, those of interest first."""
    seen = np.flatnonzero(scene.tracks.valid[:, scene.current_step])
    ordered = dict.fromkeys([*(int(track) for track in scene.tracks.to_predict if track in seen), *seen.tolist()])
    names = [scene.tracks.ids[track] for track in ordered]
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return (", ".join(names[:MAX_LISTED]) or "nobody") + more
