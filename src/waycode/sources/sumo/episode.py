"""One episode: a network, its traffic, and the smooth motion of all road users. A pure function of its seed.

A generated scene is a window of an episode and stores both. `rebuild_traffic` prepares the same simulation again, for
closed-loop simulation. SUMO's saved states do not reproduce a run, so it is always replayed from its seed.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float

from waycode.dataset.files import describe, parse_json, temporary_folder
from waycode.scene import Scene
from waycode.sources.base import SourceError
from waycode.sources.sumo.demand import MOTOR_MODES, draw_demand
from waycode.sources.sumo.families import Family, plan_network
from waycode.sources.sumo.netconvert import ConnectionInfo, RoadNetwork, build_network
from waycode.sources.sumo.recording import SUMO_STEP_S, Recording, SumoTrack, SumoTrafficPlan, record
from waycode.sources.sumo.road_map import RoadMap, build_road_map
from waycode.sources.sumo.slow_spells import draw_spells
from waycode.sources.sumo.smoothing import BodyMotion, walking_motion, wheeled_motion

SUMO_FOLDER_PREFIX = "waycode-sumo-"  # of temporary folders
_WARM_UP_S = 25.0  # until the first vehicles have met in the middle of the network
_RECORDED_S = 45.0  # times at which windows may start
GENERATOR_VERSION = 2  # raised when the same seed gives other scenes. Version 2 added slow spells


@dataclass(frozen=True, kw_only=True)
class EpisodeSeed:
    """Everything that determines an episode."""

    family: Family
    numbers: tuple[int, int, int]  # dataset seed, shard, attempt
    version: int = GENERATOR_VERSION  # of the generator


@dataclass(frozen=True, kw_only=True)
class EpisodeWindow:
    """The part of an episode that a scene shows."""

    ego: str  # id of the vehicle
    current_step: int  # in the episode
    history_steps: int  # before the current step
    future_steps: int  # after the current step

    @property
    def steps(self) -> slice:
        return slice(self.current_step - self.history_steps, self.current_step + self.future_steps + 1)


@dataclass(frozen=True, kw_only=True)
class Episode:
    """A simulated episode: its roads, and the smoothed motion of all U road users over S steps in world coordinates."""

    seed: EpisodeSeed
    roads: RoadMap
    recording: Recording  # as SUMO reported it
    first_step: int  # after the warm-up
    ids: tuple[str, ...]
    position_m: Float[np.ndarray, "U S 2"]  # of the box centres
    heading_rad: Float[np.ndarray, "U S"]  # of the boxes
    velocity_mps: Float[np.ndarray, "U S 2"]
    valid: Bool[np.ndarray, "U S"]  # whether the road user is in the simulation


def plan_traffic(seed: EpisodeSeed, *, folder: Path, window_s: float) -> SumoTrafficPlan:
    """Builds the network and draws the demand; the same seed always gives the same simulation.

    Args:
        seed: of the episode.
        folder: where SUMO's files are written.
        window_s: length of a scene, by which the simulation is prolonged.
    """
    numbers = [list(Family).index(seed.family), *seed.numbers]
    rng = np.random.default_rng(numbers)
    duration_s = _WARM_UP_S + _RECORDED_S + window_s
    plan = plan_network(seed.family, rng)
    network = build_network(plan.network, folder, is_freeway=plan.is_freeway)
    demand = draw_demand(plan, network, rng, duration_s=duration_s)
    spells = {}
    if seed.version >= 2:  # scenes of version 1 can still be rebuilt
        departures_s = {trip.id: trip.depart_s for trip in demand.trips if trip.type.mode in MOTOR_MODES}
        spells = draw_spells(departures_s, np.random.default_rng([*numbers, seed.version]))
    return SumoTrafficPlan(
        network=network,
        demand=demand,
        spells=spells,
        sumo_seed=int(rng.integers(2**31)),
        num_steps=round(duration_s / SUMO_STEP_S),
    )


def run_episode(seed: EpisodeSeed, *, window_s: float) -> Episode:
    """Builds the network, simulates the traffic and smooths its motion; `window_s` is the length of a scene."""
    with temporary_folder(SUMO_FOLDER_PREFIX) as folder:
        traffic = plan_traffic(seed, folder=folder, window_s=window_s)
        roads = build_road_map(traffic.network)
        recording = record(traffic, folder)
    shape = (len(recording.tracks), recording.num_steps)
    position, velocity = np.zeros((2, *shape, 2))
    heading, valid = np.zeros(shape), np.zeros(shape, np.bool_)
    for row, track in enumerate(recording.tracks):
        motion = _smooth_motion(track)
        span = slice(track.first_step, track.first_step + len(track.heading_rad))
        position[row, span], velocity[row, span] = motion.position_m, motion.velocity_mps
        heading[row, span], valid[row, span] = motion.heading_rad, True
    return Episode(
        seed=seed,
        roads=roads,
        recording=recording,
        first_step=round(_WARM_UP_S / SUMO_STEP_S),
        ids=tuple(track.id for track in recording.tracks),
        position_m=position,
        heading_rad=heading,
        velocity_mps=velocity,
        valid=valid,
    )


def _smooth_motion(track: SumoTrack) -> BodyMotion:
    start_heading = float(track.heading_rad[0])
    if track.type.mode == "pedestrian":
        return walking_motion(track.position_m, start_heading, dt_s=SUMO_STEP_S)
    return wheeled_motion(
        track.position_m,
        start_heading,
        length_m=track.type.length_m,
        wheelbase_m=track.type.wheelbase_m,
        front_overhang_m=track.type.front_overhang_m,
        dt_s=SUMO_STEP_S,
    )


def origin_of(scene: Scene) -> tuple[EpisodeSeed, EpisodeWindow]:
    """The episode and window of a generated scene. Raises `SourceError` for other scenes."""
    if scene.source != "sumo" or scene.rebuild is None:
        raise SourceError(
            f"scene {scene.id!r} comes from {scene.source!r}: only generated scenes can be rebuilt in SUMO"
        )
    try:
        content = parse_json(scene.rebuild)
        episode, window = content["episode"], EpisodeWindow(**content["window"])
        numbers = tuple(episode["numbers"])
        seed = EpisodeSeed(family=Family(episode["family"]), numbers=numbers, version=episode.get("version", 1))
        counts = (*numbers, seed.version, window.current_step, window.history_steps, window.future_steps)
        if len(numbers) != 3 or not all(type(count) is int and 0 <= count < 2**31 for count in counts):
            raise ValueError(f"its numbers are {counts!r:.80}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(
            f"scene {scene.id!r:.80} cannot be rebuilt ({describe(error)}): expected rebuild as `waycode data sumo` "
            "writes it"
        ) from error
    return seed, window


def rebuild_traffic(scene: Scene, folder: Path) -> tuple[SumoTrafficPlan, EpisodeWindow]:
    """The simulation that a generated scene was cut from, and its window. SUMO's files are written to `folder`."""
    seed, window = origin_of(scene)
    window_s = (window.history_steps + window.future_steps) * SUMO_STEP_S
    return plan_traffic(seed, folder=folder, window_s=window_s), window


def signal_links(scene: Scene, network: RoadNetwork) -> tuple[ConnectionInfo, ...]:
    """The links of a scene's signals, in their order; `network` is that of `rebuild_traffic`."""
    lanes = [scene.map.lanes.ids[lane] for lane in scene.signals.lanes]
    missing = [lane for lane in lanes if lane not in network.signal_links]
    if missing:
        raise SourceError(f"scene {scene.id!r} has signals on lanes {missing}, but its rebuilt network has none there")
    return tuple(network.signal_links[lane] for lane in lanes)
