"""Brings a generated scene back to life: the same network and traffic, ready to be simulated up to the scene's start.

SUMO's saved states do not reproduce a run, so that a simulation is always replayed from its seed.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from waycode.scene import Scene
from waycode.sources.base import SourceError
from waycode.sources.sumo.episode import EpisodeSeed, Traffic, prepare_traffic
from waycode.sources.sumo.families import Family
from waycode.sources.sumo.recording import STEP_S
from waycode.sources.sumo.windows import Window


@dataclass(frozen=True, kw_only=True)
class LiveScene:
    """What to start SUMO with, and the window of the scene: its first step is `window.steps.start`."""

    traffic: Traffic
    window: Window


def rebuild(scene: Scene, folder: Path) -> LiveScene:
    """Makes a scene's network and demand again; `folder` is where SUMO's files are put."""
    if scene.source != "sumo" or scene.rebuild is None:
        raise SourceError(
            f"scene {scene.id!r} comes from {scene.source!r}: only generated scenes can be brought to life"
        )
    content = json.loads(scene.rebuild)
    episode, window = content["episode"], Window(**content["window"])
    seed = EpisodeSeed(family=Family(episode["family"]), numbers=tuple(episode["numbers"]))
    window_s = (window.history_steps + window.future_steps) * STEP_S
    return LiveScene(traffic=prepare_traffic(seed, folder=folder, window_s=window_s), window=window)
