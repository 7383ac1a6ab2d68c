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
from waycode.sources.sumo.netconvert import RoadNetwork, SignalLink
from waycode.sources.sumo.recording import STEP_S
from waycode.sources.sumo.windows import Window


@dataclass(frozen=True, kw_only=True)
class LiveScene:
    """What to start SUMO with, and the window of the scene: its first step is `window.steps.start`."""

    traffic: Traffic
    window: Window


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a generated scene was cut out."""

    seed: EpisodeSeed
    window: Window


def origin_of(scene: Scene) -> Origin:
    """Reads where a generated scene comes from; scenes from elsewhere are refused."""
    if scene.source != "sumo" or scene.rebuild is None:
        raise SourceError(
            f"scene {scene.id!r} comes from {scene.source!r}: only generated scenes can be brought to life"
        )
    content = json.loads(scene.rebuild)
    episode = content["episode"]
    seed = EpisodeSeed(
        family=Family(episode["family"]), numbers=tuple(episode["numbers"]), version=episode.get("version", 1)
    )
    return Origin(seed=seed, window=Window(**content["window"]))


def rebuild(scene: Scene, folder: Path) -> LiveScene:
    """Makes a scene's network and demand again; `folder` is where SUMO's files are put."""
    origin = origin_of(scene)
    window_s = (origin.window.history_steps + origin.window.future_steps) * STEP_S
    return LiveScene(traffic=prepare_traffic(origin.seed, folder=folder, window_s=window_s), window=origin.window)


def signal_links(scene: Scene, network: RoadNetwork) -> tuple[SignalLink, ...]:
    """The lights of a scene's signals in the network that it was cut out of, in the order of the signals."""
    link_of = {link.internal_lane: link for link in network.signal_links}
    lanes = [scene.map.lanes.ids[lane] for lane in scene.signals.lanes]
    missing = [lane for lane in lanes if lane not in link_of]
    if missing:
        raise SourceError(f"scene {scene.id!r} has lights on {missing}, and its network, made again, has none there")
    return tuple(link_of[lane] for lane in lanes)
