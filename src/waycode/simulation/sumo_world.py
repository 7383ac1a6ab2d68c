"""The world of a generated scene, live in SUMO, with an ego that is put where it is told.

It runs in a process of its own (`sumo_worker`). All positions are in the world frame. Axes: U road users, G signals.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int8

from waycode.scene import Scene
from waycode.simulation.errors import SimulationError
from waycode.simulation.sumo_shadow import CLEARANCE_M, MotorLanes, Placement
from waycode.sources.sumo.netconvert import SignalLink
from waycode.sources.sumo.rebuild import LiveScene, rebuild, signal_links
from waycode.sources.sumo.recording import STEP_S, simulation
from waycode.sources.sumo.road_users import RoadUserType
from waycode.sources.sumo.slow_spells import SpellKeeper
from waycode.sources.sumo.windows import signal_state

EXACTLY_THERE = 2  # SUMO's `keepRoute`: off the route and off the road too
NO_LANE_CHANGES = 0
SHADOW = "waycode-shadow"


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """Everyone but the ego, as SUMO has them: the front bumper of a vehicle, the middle of a person."""

    ids: tuple[str, ...]
    kinds: tuple[RoadUserType, ...]
    position_m: Float[np.ndarray, "U 2"]
    heading_rad: Float[np.ndarray, " U"]
    speed_mps: Float[np.ndarray, " U"]
    signal_states: Int8[np.ndarray, " G"]  # of the scene's signals, in their order


@contextmanager
def live_world(scene: Scene) -> Iterator["LiveWorld"]:
    """Builds the scene's world from its seed and replays it up to the current step."""
    with tempfile.TemporaryDirectory(prefix="waycode-sumo-") as name:
        live = rebuild(scene, Path(name))
        links = signal_links(scene, live.traffic.network)
        routes = Path(name) / "demand.rou.xml"
        live.traffic.demand.write(routes)
        with simulation(live.traffic.network.path, routes, seed=live.traffic.sumo_seed) as sumo:
            keeper, step = SpellKeeper(live.traffic.spells), live.window.steps.start + scene.current_step + 1
            for past in range(step):
                keeper.before_step(sumo, past * STEP_S)
                sumo.simulationStep()
            ego = scene.tracks.ids[ego_row(scene)]
            yield LiveWorld(sumo, live, ego=ego, links=links, keeper=keeper, step=step)


def ego_row(scene: Scene) -> int:
    """The row of the ego among the tracks."""
    if scene.tracks.ego_index is None:
        raise SimulationError(f"scene {scene.id!r} has no ego: a simulation needs one")
    return scene.tracks.ego_index


class LiveWorld:
    """A running simulation, to be stepped."""

    def __init__(
        self, sumo: Any, live: LiveScene, *, ego: str, links: tuple[SignalLink, ...], keeper: SpellKeeper, step: int
    ):
        self._sumo, self._ego, self._links = sumo, ego, links
        self._keeper, self._step = keeper, step
        self._kinds = {trip.id: trip.type for trip in live.traffic.demand.trips}
        self._lanes = MotorLanes(live.traffic.network.lanes.values())
        self._shadow: str | None = None  # its name, if there is one
        self._num_shadows = 0
        self._shadow_route = min(live.traffic.network.edges)  # any will do: it is never driven
        sumo.vehicle.setLaneChangeMode(ego, NO_LANE_CHANGES)

    def step(self, ego: Placement) -> None:
        """One step, at whose end the ego is at its new place; the others decided by where it was before."""
        shadow = self._lanes.shadow_of(ego)
        self._sumo.vehicle.setWidth(self._ego, ego.width_m + (0 if shadow is None else CLEARANCE_M))
        self._put(self._ego, ego)
        is_new = self._cast(shadow)
        self._keeper.before_step(self._sumo, self._step * STEP_S, leave_out=[self._ego])
        self._sumo.simulationStep()
        self._step += 1
        if is_new and shadow is not None:  # else who follows would brake for one step as if it stood
            share = max(0.0, float(np.cos(shadow.heading_rad - ego.heading_rad)))
            self._sumo.vehicle.setPreviousSpeed(self._shadow, share * self._sumo.vehicle.getSpeed(self._ego))

    def sighting(self) -> Sighting:
        seen = [
            (user, domain.getPosition(user), domain.getAngle(user), domain.getSpeed(user))
            for domain in (self._sumo.vehicle, self._sumo.person)
            for user in sorted(domain.getIDList())
            if user in self._kinds and user != self._ego
        ]
        letters = [self._sumo.trafficlight.getRedYellowGreenState(link.signal_id) for link in self._links]
        lights = [signal_state(state[link.link_index]) for state, link in zip(letters, self._links, strict=True)]
        return Sighting(
            ids=tuple(user for user, *_ in seen),
            kinds=tuple(self._kinds[user] for user, *_ in seen),
            position_m=np.array([position for _, position, *_ in seen], np.float64).reshape(-1, 2),
            # SUMO counts degrees clockwise from north.
            heading_rad=np.radians(90.0 - np.array([angle for *_, angle, _ in seen], np.float64)),
            speed_mps=np.array([speed for *_, speed in seen], np.float64),
            signal_states=np.array(lights, np.int8),
        )

    def _cast(self, shadow: Placement | None) -> bool:
        """Puts the shadow there or takes it away, and says whether it is new."""
        if shadow is None:
            if self._shadow is not None:
                self._sumo.vehicle.remove(self._shadow)
            self._shadow = None
            return False
        is_new = self._shadow is None
        if self._shadow is None:
            self._num_shadows += 1
            self._shadow = f"{SHADOW}-{self._num_shadows}"
            self._sumo.route.add(self._shadow, [self._shadow_route])
            # The ego's own type, made for it when its width was set, must not be shared: SUMO frees it twice.
            self._sumo.vehicle.add(self._shadow, self._shadow, self._kinds[self._ego].name)
            self._sumo.vehicle.setLaneChangeMode(self._shadow, NO_LANE_CHANGES)
        self._sumo.vehicle.setWidth(self._shadow, shadow.width_m)
        self._put(self._shadow, shadow)
        return is_new

    def _put(self, name: str, box: Placement) -> None:
        x, y = box.front_m
        degrees = 90.0 - float(np.degrees(box.heading_rad))
        self._sumo.vehicle.moveToXY(name, "", -1, x, y, degrees, EXACTLY_THERE)
