"""Runs SUMO in this process and records all road users and signals."""

import contextlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from waycode.sources.base import SourceError
from waycode.sources.sumo.demand import Demand, RoadUserType
from waycode.sources.sumo.netconvert import RoadNetwork
from waycode.sources.sumo.slow_spells import SlowSpell, SlowSpellController

SUMO_STEP_S = 0.1

_SUMO_OPTIONS = (
    # Sublane model with ballistic updates; collisions are reported, not resolved; vehicles are never teleported.
    "--step-length", str(SUMO_STEP_S),
    "--lateral-resolution", "0.4",
    "--step-method.ballistic", "true",
    "--collision.action", "warn",
    "--collision.check-junctions", "true",
    "--collision.mingap-factor", "0",
    "--time-to-teleport", "-1",
    "--ignore-route-errors", "true",
    "--time-to-impatience", "120",
    "--no-step-log", "true",
    "--no-warnings", "true",
    "--duration-log.disable", "true",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SumoTrafficPlan:
    """The input of a SUMO simulation."""

    network: RoadNetwork
    demand: Demand
    spells: dict[str, SlowSpell]  # by vehicle id
    sumo_seed: int  # seed of SUMO's random numbers
    num_steps: int  # of the whole episode


@dataclass(frozen=True, kw_only=True)
class SumoTrack:
    """SUMO's positions and headings of one road user over its n steps in the simulation."""

    id: str
    type: RoadUserType
    first_step: int  # step at which it enters the simulation
    position_m: Float[np.ndarray, "n 2"]  # front bumper of a vehicle, centre of a pedestrian
    heading_rad: Float[np.ndarray, " n"]
    route: tuple[str, ...]  # edges


@dataclass(frozen=True, kw_only=True)
class Recording:
    """All road users and signals of an episode, as SUMO reported them."""

    num_steps: int
    tracks: tuple[SumoTrack, ...]  # sorted by id
    signal_states: dict[str, list[str]]  # by signal id: SUMO's state letters at each step


@contextlib.contextmanager
def simulation(traffic: SumoTrafficPlan, folder: Path) -> Iterator[Any]:
    """Starts a simulation, to be controlled through the returned `libsumo` module, and closes it at the end.

    libsumo runs one simulation per process. The route file is written to `folder`.
    """
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # hides its warning about pyarrow in the same process
            import libsumo
    except ImportError as error:
        raise SourceError("generating scenes needs SUMO: pip install 'waycode[sumo]'") from error
    routes = folder / "demand.rou.xml"
    traffic.demand.write(routes)
    files = ["-n", str(traffic.network.path), "-r", str(routes)]
    libsumo.start(["sumo", *files, "--seed", str(traffic.sumo_seed), *_SUMO_OPTIONS])
    try:
        yield libsumo
    finally:
        libsumo.close()


def record(traffic: SumoTrafficPlan, folder: Path) -> Recording:
    """Simulates the traffic in `folder`. Step i is the state at time i * SUMO_STEP_S."""
    trips = {trip.id: trip for trip in traffic.demand.trips}
    first_step: dict[str, int] = {}
    samples: dict[str, list[tuple[float, float, float]]] = {}
    with simulation(traffic, folder) as sumo:
        signals: dict[str, list[str]] = {signal: [] for signal in sorted(sumo.trafficlight.getIDList())}
        controller = SlowSpellController(traffic.spells)
        for step in range(traffic.num_steps):
            controller.before_step(sumo, step * SUMO_STEP_S)
            sumo.simulationStep()
            for domain in (sumo.vehicle, sumo.person):
                for user in domain.getIDList():
                    x, y = domain.getPosition(user)
                    first_step.setdefault(user, step)
                    samples.setdefault(user, []).append((x, y, domain.getAngle(user)))
            for signal, states in signals.items():
                states.append(sumo.trafficlight.getRedYellowGreenState(signal))
    tracks = []
    for user in sorted(samples):
        x, y, angle = np.array(samples[user]).T
        track = SumoTrack(
            id=user,
            type=trips[user].type,
            first_step=first_step[user],
            position_m=np.stack([x, y], axis=1),
            heading_rad=heading_from_sumo(angle),
            route=trips[user].edges,
        )
        tracks.append(track)
    return Recording(num_steps=traffic.num_steps, tracks=tuple(tracks), signal_states=signals)


def heading_from_sumo(angle_deg: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """SUMO's angles are in degrees, clockwise from north."""
    return np.radians(90.0 - angle_deg)
