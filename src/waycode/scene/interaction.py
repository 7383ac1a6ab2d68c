"""Which road users interact: those that come near each other at the same time."""

import numpy as np
from jaxtyping import Bool, Float, Int

from waycode.scene.types import Scene, TrackType

INTERACTION_M = 40.0  # road users that never come nearer are not modelled jointly


def who_interacts(
    position_m: Float[np.ndarray, "N T 2"], valid: Bool[np.ndarray, "N T"], agent: int, *, count: int
) -> Int[np.ndarray, " n"]:
    """An agent and up to `count` - 1 others that come nearest to it at the same time: indices, ascending.

    Args:
        position_m: of all road users, in one frame.
        valid: which of the positions are known.
        agent: index of the agent.
        count: of road users, the agent included.
    """
    both = valid & valid[agent]
    away_m = np.linalg.norm(position_m - position_m[agent], axis=-1)
    nearest_m = np.where(both, away_m, np.inf).min(axis=1, initial=np.inf)
    nearest_m[agent] = -1.0
    chosen = np.argsort(nearest_m, kind="stable")[:count]
    return np.sort(chosen[nearest_m[chosen] < INTERACTION_M])


def interacting_tracks(scene: Scene, agent: int, *, count: int) -> list[int]:
    """A track and up to `count` - 1 others that are observed now and come nearest to it, by the recording.

    Args:
        scene: with or without a recorded future; without one, the distances at the current step decide.
        agent: index of the track.
        count: of tracks, the agent included.
    """
    tracks, now = scene.tracks, scene.current_step
    present = tracks.valid[:, now] & (tracks.types != TrackType.OTHER)
    present[agent] = True
    return [
        int(track)
        for track in who_interacts(
            tracks.position_m[:, now:], tracks.valid[:, now:] & present[:, None], agent, count=count
        )
    ]
