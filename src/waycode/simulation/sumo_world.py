"""The world of a generated scene, live in SUMO, in a separate process.

libsumo holds one simulation per process, and a crash of SUMO must not end ours. All positions are in world coordinates.
Axes: U road users, G signals.
"""

import multiprocessing
import signal
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np
from jaxtyping import Float, Int8

from waycode.dataset.files import temporary_folder
from waycode.scene import Scene
from waycode.simulation.errors import SimulationError, require_ego
from waycode.simulation.sumo_bodies import SHADOW_CLEARANCE_M, MotorLanes, Placement
from waycode.sources.sumo.demand import RoadUserType
from waycode.sources.sumo.episode import SUMO_FOLDER_PREFIX, rebuild_traffic, signal_links
from waycode.sources.sumo.netconvert import ConnectionInfo
from waycode.sources.sumo.recording import SUMO_STEP_S, SumoTrafficPlan, heading_from_sumo, simulation
from waycode.sources.sumo.slow_spells import SlowSpellController
from waycode.sources.sumo.windows import signal_state

_EXACT_POSITION = 2  # SUMO's `keepRoute` flag: off the route and off the road, too
_NO_LANE_CHANGES = 0  # SUMO's lane change mode
_JOIN_TIMEOUT_S = 5.0  # for a worker that should end


@dataclass(frozen=True, kw_only=True)
class SumoObservation:
    """All road users but the ego, as SUMO reports them."""

    ids: tuple[str, ...]
    kinds: tuple[RoadUserType, ...]
    position_m: Float[np.ndarray, "U 2"]  # front bumper of a vehicle, centre of a pedestrian
    heading_rad: Float[np.ndarray, " U"]
    speed_mps: Float[np.ndarray, " U"]
    signal_states: Int8[np.ndarray, " G"]  # of the scene's signals, in the scene's order


@contextmanager
def start_world(scene: Scene) -> Iterator["LiveWorld"]:
    """Builds the scene's world from its seed and simulates it up to the current step."""
    with temporary_folder(SUMO_FOLDER_PREFIX) as folder:
        traffic, window = rebuild_traffic(scene, folder)
        links = signal_links(scene, traffic.network)
        with simulation(traffic, folder) as sumo:
            spells, step = SlowSpellController(traffic.spells), window.steps.start + scene.current_step + 1
            for past in range(step):
                spells.before_step(sumo, past * SUMO_STEP_S)
                sumo.simulationStep()
            ego = scene.tracks.ids[require_ego(scene)]
            yield LiveWorld(sumo, traffic, ego=ego, links=links, spells=spells, step=step)


class LiveWorld:
    """A running simulation in which the ego is placed from outside.

    Args:
        sumo: the `libsumo` module, with the simulation at `step`.
        traffic: network and demand of the simulation.
        ego: id of the ego.
        links: signal links to report.
        spells: controller of the other drivers.
        step: of the episode.
    """

    def __init__(
        self,
        sumo: Any,
        traffic: SumoTrafficPlan,
        *,
        ego: str,
        links: tuple[ConnectionInfo, ...],
        spells: SlowSpellController,
        step: int,
    ):
        self._sumo, self._ego, self._links = sumo, ego, links
        self._spells, self._step = spells, step
        self._kinds = {trip.id: trip.type for trip in traffic.demand.trips}
        self._lanes = MotorLanes(traffic.network.lanes.values())
        self._shadow: str | None = None  # id of the shadow vehicle, if there is one
        self._num_shadows = 0
        self._shadow_route = min(traffic.network.edges)  # any edge: the shadow never drives its route
        sumo.vehicle.setLaneChangeMode(ego, _NO_LANE_CHANGES)

    def step(self, ego: Placement) -> None:
        """Simulates one step, after which the ego is at the given place. The others react to its previous place."""
        shadow = self._lanes.shadow_of(ego)
        self._sumo.vehicle.setWidth(self._ego, ego.width_m + (0 if shadow is None else SHADOW_CLEARANCE_M))
        self._place(self._ego, ego)
        is_new = self._place_shadow(shadow)
        self._spells.before_step(self._sumo, self._step * SUMO_STEP_S, excluded=[self._ego])
        self._sumo.simulationStep()
        self._step += 1
        if is_new and shadow is not None:  # otherwise followers would brake for one step as if it were standing
            share = max(0.0, float(np.cos(shadow.heading_rad - ego.heading_rad)))
            self._sumo.vehicle.setPreviousSpeed(self._shadow, share * self._sumo.vehicle.getSpeed(self._ego))

    def observe(self) -> SumoObservation:
        """The current state of the other road users and of the signals."""
        seen = [
            (user, domain.getPosition(user), domain.getAngle(user), domain.getSpeed(user))
            for domain in (self._sumo.vehicle, self._sumo.person)
            for user in sorted(domain.getIDList())
            if user in self._kinds and user != self._ego
        ]
        letters = [self._sumo.trafficlight.getRedYellowGreenState(link.signal_id) for link in self._links]
        lights = [signal_state(state[link.link_index]) for state, link in zip(letters, self._links, strict=True)]
        return SumoObservation(
            ids=tuple(user for user, *_ in seen),
            kinds=tuple(self._kinds[user] for user, *_ in seen),
            position_m=np.array([position for _, position, *_ in seen], np.float64).reshape(-1, 2),
            heading_rad=heading_from_sumo(np.array([angle for *_, angle, _ in seen], np.float64)),
            speed_mps=np.array([speed for *_, speed in seen], np.float64),
            signal_states=np.array(lights, np.int8),
        )

    def _place_shadow(self, shadow: Placement | None) -> bool:
        """Places the shadow vehicle or removes it. Returns whether it is new."""
        if shadow is None:
            if self._shadow is not None:
                self._sumo.vehicle.remove(self._shadow)
            self._shadow = None
            return False
        is_new = self._shadow is None
        if self._shadow is None:
            self._num_shadows += 1
            self._shadow = f"waycode-shadow-{self._num_shadows}"
            self._sumo.route.add(self._shadow, [self._shadow_route])
            # Not the ego's current type, which SUMO made when its width was set and would free twice.
            self._sumo.vehicle.add(self._shadow, self._shadow, self._kinds[self._ego].name)
            self._sumo.vehicle.setLaneChangeMode(self._shadow, _NO_LANE_CHANGES)
        self._sumo.vehicle.setWidth(self._shadow, shadow.width_m)
        self._place(self._shadow, shadow)
        return is_new

    def _place(self, name: str, box: Placement) -> None:
        x, y = box.front_m
        degrees = 90.0 - float(np.degrees(box.heading_rad))
        self._sumo.vehicle.moveToXY(name, "", -1, x, y, degrees, _EXACT_POSITION)


@dataclass(frozen=True)
class WorkerFailure:
    """The reply of the worker to a request that failed."""

    message: str


def run_worker(connection: Connection) -> None:
    """Replies to requests with a `SumoObservation` or a `WorkerFailure`, until the connection closes.

    A `Scene` starts its world anew; a `Placement` of the ego simulates one step.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C; when it ends, the connection closes
    world: LiveWorld | None = None
    with suppress(EOFError, OSError), ExitStack() as running:
        while True:
            request = connection.recv()
            try:
                if isinstance(request, Scene):
                    running.close()  # one simulation at a time
                    world = running.enter_context(start_world(request))
                elif world is not None:
                    world.step(request)
                reply = WorkerFailure("no scene was started") if world is None else world.observe()
            except Exception as error:  # SUMO may raise anything; the parent reports it
                reply = WorkerFailure(str(error))
            connection.send(reply)


class SumoProcess:
    """The worker, seen from the parent process. It ends when this object is deleted."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would copy threads and open files
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=run_worker, args=(theirs,), daemon=True, name="waycode-sumo")
        self._process.start()
        theirs.close()  # so that the connection closes when the worker ends
        self._scene: Scene | None = None
        self._moves: tuple[Placement, ...] = ()
        self.close = weakref.finalize(self, _end_worker, self._process, self._connection)

    @property
    def is_closed(self) -> bool:
        return not self.close.alive

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def observe(self, scene: Scene, moves: tuple[Placement, ...]) -> SumoObservation:
        """The world after the ego was placed at `moves`, one per step from the scene's current step on.

        One more move than in the last call is cheap. Anything else replays the world from its seed.
        """
        if moves and self._scene is scene and self._moves == moves[:-1]:
            observation = self._request(moves[-1], scene)
        else:
            observation = self._request(scene, scene)
            for move in moves:
                observation = self._request(move, scene)
        self._scene, self._moves = scene, moves
        return observation

    def _request(self, request: Scene | Placement, scene: Scene) -> SumoObservation:
        self._scene = None  # the state of the worker is unknown until it replies
        try:
            self._connection.send(request)
            reply = self._connection.recv()
        except (EOFError, OSError) as error:
            self._process.join(_JOIN_TIMEOUT_S)
            code = self._process.exitcode
            self.close()
            raise SimulationError(
                f"the SUMO process of scene {scene.id!r} ended by itself (exit code {code}): simulate the scene again"
            ) from error
        if isinstance(reply, WorkerFailure):
            self.close()
            raise SimulationError(f"SUMO cannot simulate scene {scene.id!r}: {reply.message}")
        observation: SumoObservation = reply
        return observation


def _end_worker(process: BaseProcess, connection: Connection) -> None:
    """Closes the connection, which ends the worker. A worker that does not end in time is killed."""
    connection.close()
    process.join(_JOIN_TIMEOUT_S)
    if process.is_alive():
        process.kill()
        process.join()
