"""Runs SUMO in this process and writes down what happens."""

import contextlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from waycode.sources.base import SourceError
from waycode.sources.sumo.demand import Demand
from waycode.sources.sumo.road_users import RoadUserType
from waycode.sources.sumo.slow_spells import SlowSpell, SpellKeeper

STEP_S = 0.1

SUMO_OPTIONS = (
    "--step-length", str(STEP_S),
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
class Life:
    """What SUMO reported of one road user: the front bumper of a vehicle, the middle of a person."""

    id: str
    type: RoadUserType
    first_step: int
    position_m: Float[np.ndarray, "n 2"]
    heading_rad: Float[np.ndarray, " n"]
    route: tuple[str, ...]  # edges


@dataclass(frozen=True, kw_only=True)
class Recording:
    num_steps: int
    lives: tuple[Life, ...]  # sorted by id
    signal_states: dict[str, list[str]]  # by signal id: SUMO's state letters at each step


def load_libsumo() -> Any:
    """SUMO as a module: one simulation per process."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it warns of the pyarrow that is installed beside it
            import libsumo
    except ImportError as error:
        raise SourceError("generating scenes needs SUMO: pip install 'waycode[sumo]'") from error
    return libsumo


@contextlib.contextmanager
def simulation(network: Path, routes: Path, *, seed: int) -> Iterator[Any]:
    """A running simulation, as the `libsumo` module; it is closed on the way out."""
    libsumo = load_libsumo()
    libsumo.start(["sumo", "-n", str(network), "-r", str(routes), "--seed", str(seed), *SUMO_OPTIONS])
    try:
        yield libsumo
    finally:
        libsumo.close()


def record(
    network: Path, demand: Demand, *, spells: dict[str, SlowSpell], folder: Path, seed: int, num_steps: int
) -> Recording:
    """Runs the demand on the network for a number of steps; step i is the state at time i * STEP_S."""
    routes = folder / "demand.rou.xml"
    demand.write(routes)
    trips = {trip.id: trip for trip in demand.trips}
    first_step: dict[str, int] = {}
    samples: dict[str, list[tuple[float, float, float]]] = {}
    with simulation(network, routes, seed=seed) as sumo:
        signals: dict[str, list[str]] = {signal: [] for signal in sorted(sumo.trafficlight.getIDList())}
        keeper = SpellKeeper(spells)
        for step in range(num_steps):
            keeper.before_step(sumo, step * STEP_S)
            sumo.simulationStep()
            for domain in (sumo.vehicle, sumo.person):
                for user in domain.getIDList():
                    x, y = domain.getPosition(user)
                    first_step.setdefault(user, step)
                    samples.setdefault(user, []).append((x, y, domain.getAngle(user)))
            for signal, states in signals.items():
                states.append(sumo.trafficlight.getRedYellowGreenState(signal))
    lives = []
    for user in sorted(samples):
        values = np.array(samples[user])
        heading = np.radians(90.0 - values[:, 2])  # SUMO counts degrees clockwise from north
        trip = trips[user]
        lives.append(
            Life(
                id=user,
                type=trip.type,
                first_step=first_step[user],
                position_m=values[:, :2],
                heading_rad=heading,
                route=trip.edges,
            )
        )
    return Recording(num_steps=num_steps, lives=tuple(lives), signal_states=signals)
