"""One episode: a network, its traffic, and the smooth motion of everyone in it. A pure function of its seed."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from waycode.sources.sumo.demand import Demand, draw_demand
from waycode.sources.sumo.families import Family, NetworkPlan, plan_network
from waycode.sources.sumo.netconvert import RoadNetwork, build_network
from waycode.sources.sumo.recording import STEP_S, Life, Recording, record
from waycode.sources.sumo.road_map import RoadMap, road_map
from waycode.sources.sumo.slow_spells import MOTOR_MODES, SlowSpell, draw_spells
from waycode.sources.sumo.smoothing import BodyMotion, walking_motion, wheeled_motion

WARM_UP_S = 25.0  # until the first vehicles have met in the middle
RECORDED_S = 45.0
GENERATOR_VERSION = 2  # raised when the same seed gives other scenes. 2: drivers who slow down without a reason


@dataclass(frozen=True, kw_only=True)
class EpisodeSeed:
    """All that is needed to make an episode again."""

    family: Family
    numbers: tuple[int, int, int]  # dataset seed, shard, attempt
    version: int = GENERATOR_VERSION

    def generator(self) -> np.random.Generator:
        return np.random.default_rng([list(Family).index(self.family), *self.numbers])


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What SUMO is started with."""

    plan: NetworkPlan
    network: RoadNetwork
    demand: Demand
    spells: dict[str, SlowSpell]  # by vehicle
    sumo_seed: int
    num_steps: int


@dataclass(frozen=True, kw_only=True)
class Episode:
    seed: EpisodeSeed
    roads: RoadMap
    recording: Recording
    motions: dict[str, BodyMotion]  # by road user's id, over the steps of its life
    first_step: int  # the end of the warm-up


def prepare_traffic(seed: EpisodeSeed, *, folder: Path, window_s: float) -> Traffic:
    """Builds the network and draws the demand; the same seed always gives the same simulation."""
    rng = seed.generator()
    duration_s = WARM_UP_S + RECORDED_S + window_s
    plan = plan_network(seed.family, rng)
    network = build_network(plan.network, folder, is_freeway=plan.is_freeway)
    demand = draw_demand(plan, network, rng, duration_s=duration_s)
    return Traffic(
        plan=plan,
        network=network,
        demand=demand,
        spells=_spells(seed, demand),
        sumo_seed=int(rng.integers(2**31)),
        num_steps=round(duration_s / STEP_S),
    )


def _spells(seed: EpisodeSeed, demand: Demand) -> dict[str, SlowSpell]:
    """Who slows down without a reason; in scenes of the first version nobody did, and they can still be made again."""
    if seed.version < 2:
        return {}
    motor = {trip.id: trip.depart_s for trip in demand.trips if trip.type.mode in MOTOR_MODES}
    return draw_spells(motor, np.random.default_rng([list(Family).index(seed.family), *seed.numbers, seed.version]))


def run_episode(seed: EpisodeSeed, *, window_s: float) -> Episode:
    """Builds, simulates and smooths."""
    with tempfile.TemporaryDirectory(prefix="waycode-sumo-") as name:
        folder = Path(name)
        traffic = prepare_traffic(seed, folder=folder, window_s=window_s)
        roads = road_map(traffic.network)
        recording = record(
            traffic.network.path,
            traffic.demand,
            spells=traffic.spells,
            folder=folder,
            seed=traffic.sumo_seed,
            num_steps=traffic.num_steps,
        )
    return Episode(
        seed=seed,
        roads=roads,
        recording=recording,
        motions={life.id: _motion(life) for life in recording.lives},
        first_step=round(WARM_UP_S / STEP_S),
    )


def _motion(life: Life) -> BodyMotion:
    start_heading = float(life.heading_rad[0])
    if life.type.mode == "pedestrian":
        return walking_motion(life.position_m, start_heading, dt_s=STEP_S)
    return wheeled_motion(
        life.position_m,
        start_heading,
        length_m=life.type.length_m,
        wheelbase_m=life.type.wheelbase_m,
        front_overhang_m=life.type.front_overhang_m,
        dt_s=STEP_S,
    )
