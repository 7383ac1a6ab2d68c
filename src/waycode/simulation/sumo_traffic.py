"""Reactive traffic by SUMO: the drivers of a generated scene react to the ego as they did to each other.

The scene's world is rebuilt from its seed and simulated up to the current step. From there on the ego is placed where
our simulation has it, and SUMO controls all other road users and the traffic lights.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int8

from waycode.driving import Vehicle, VehicleState
from waycode.scene import Scene
from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import forward
from waycode.simulation.errors import SimulationError, require_ego
from waycode.simulation.sumo_bodies import Body, Placement
from waycode.simulation.sumo_world import SumoObservation, SumoProcess
from waycode.simulation.traffic import Snapshot, recorded_snapshot
from waycode.sources.sumo.episode import origin_of

_MAX_DRIFT_M = 2.0  # smoothing moves road users by decimetres; more means that the rebuilt world differs
_OTHER_WORLD = "it was made by another version of SUMO or Waycode; generate it again"


@dataclass(frozen=True, kw_only=True)
class SumoState:
    """State of the traffic. SUMO's own state follows from `scene` and `moves`."""

    scene: Scene
    moves: tuple[Placement, ...]  # of the ego, one per step so far
    snapshot: Snapshot  # the latest
    bodies: dict[str, Body]  # road users that are present, by id
    centre_m: Float[np.ndarray, " 2"]  # of the scene's map, in world coordinates
    reach_m: float  # radius of the map around it


class SumoTraffic:
    """Simulates the other road users of generated scenes in a SUMO process, which starts at the first `reset`.

    The process only caches the latest state. Any state can be stepped at any time, but an earlier one costs a replay.
    `close` ends the process, as does the deletion of this object.
    """

    def __init__(self) -> None:
        self._process: SumoProcess | None = None

    def reset(self, scene: Scene) -> SumoState:
        """The state at the scene's current step."""
        origin_of(scene)  # raises for scenes of other sources before a process starts
        ego, tracks, now = require_ego(scene), scene.tracks, scene.current_step
        bodies = _recorded_bodies(scene, self._observe(scene, ()))
        points, centre = scene.map.lanes.centrelines.points_m, tracks.position_m[ego, now]
        return SumoState(
            scene=scene,
            moves=(),
            snapshot=recorded_snapshot(scene, now),
            bodies=bodies,
            centre_m=centre.astype(np.float64) + scene.origin_m,
            reach_m=float(np.linalg.norm(points - centre, axis=-1).max(initial=0.0)),
        )

    def step(self, state: SumoState, ego: VehicleState, *, vehicle: Vehicle) -> tuple[SumoState, Snapshot]:
        """One step, after which the ego is in the given state (in the scene frame)."""
        front = ego.rear_axle_m[0] + vehicle.front_m * forward(ego.heading_rad)[0] + state.scene.origin_m
        move = Placement(
            front_m=(float(front[0]), float(front[1])),
            heading_rad=float(ego.heading_rad[0]),
            length_m=vehicle.length_m,
            width_m=vehicle.width_m,
        )
        moves = (*state.moves, move)
        observation = self._observe(state.scene, moves)
        bodies = _moved_bodies(state, observation)
        snapshot = _snapshot(state, bodies, signal_states=observation.signal_states)
        return replace(state, moves=moves, bodies=bodies, snapshot=snapshot), snapshot

    @property
    def pid(self) -> int | None:
        """Process id of SUMO, or None if it is not running."""
        return None if self._process is None else self._process.pid

    def close(self) -> None:
        """Ends SUMO's process."""
        if self._process is not None:
            self._process.close()
        self._process = None

    def _observe(self, scene: Scene, moves: tuple[Placement, ...]) -> SumoObservation:
        if self._process is None or self._process.is_closed:
            self._process = SumoProcess()
        return self._process.observe(scene, moves)


def _recorded_bodies(scene: Scene, observation: SumoObservation) -> dict[str, Body]:
    """The other road users at their recorded poses of the current step, which SUMO's world must match."""
    tracks, now = scene.tracks, scene.current_step
    seen = {name: index for index, name in enumerate(observation.ids)}
    bodies = {}
    for row in np.flatnonzero(tracks.valid[:, now] & (np.arange(len(tracks)) != tracks.ego_index)):
        name = tracks.ids[row]
        if name not in seen:
            raise SimulationError(f"scene {scene.id!r}, rebuilt by SUMO, has no {name!r}: {_OTHER_WORLD}")
        body = Body.at_centre(
            observation.kinds[seen[name]],
            tracks.position_m[row, now].astype(np.float64) + scene.origin_m,
            heading_rad=float(tracks.heading_rad[row, now]),
            velocity_mps=(float(tracks.vx_mps[row, now]), float(tracks.vy_mps[row, now])),
        )
        drift_m = float(np.linalg.norm(body.bumper_m - observation.position_m[seen[name]]))
        if drift_m > _MAX_DRIFT_M:
            raise SimulationError(
                f"in scene {scene.id!r}, rebuilt by SUMO, {name!r} is {drift_m:.1f} m off: {_OTHER_WORLD}"
            )
        bodies[name] = body
    return bodies


def _moved_bodies(state: SumoState, observation: SumoObservation) -> dict[str, Body]:
    """The bodies of all road users that were recorded or present before, and of new ones within the map."""
    known = set(state.snapshot.ids)
    near = np.linalg.norm(observation.position_m - state.centre_m, axis=-1) < state.reach_m
    bodies = {}
    for index, name in enumerate(observation.ids):
        bumper = observation.position_m[index]
        if name in state.bodies:
            bodies[name] = state.bodies[name].moved_to(bumper, dt_s=state.scene.dt_s)
        elif name in known or near[index]:
            bodies[name] = Body.at_bumper(
                observation.kinds[index],
                bumper,
                heading_rad=float(observation.heading_rad[index]),
                speed_mps=float(observation.speed_mps[index]),
            )
    return bodies


def _snapshot(state: SumoState, bodies: dict[str, Body], *, signal_states: Int8[np.ndarray, " G"]) -> Snapshot:
    """The rows of the last snapshot with new values, and additional rows for new road users."""
    last = state.snapshot
    known = set(last.ids)
    new = tuple(name for name in bodies if name not in known)
    kinds = [bodies[name].kind for name in new]
    ids = (*last.ids, *new) if new else last.ids  # the recorder relies on the same object if none is new
    present = [bodies.get(name) for name in ids]
    centre = [np.zeros(2) if body is None else body.centre_m - state.scene.origin_m for body in present]
    velocity = [(0.0, 0.0) if body is None else body.velocity_mps for body in present]
    return Snapshot(
        ids=ids,
        types=np.append(last.types, [kind.track_type for kind in kinds]).astype(np.int8),
        length_m=np.append(last.length_m, [kind.length_m for kind in kinds]),
        width_m=np.append(last.width_m, [kind.width_m for kind in kinds]),
        position_m=np.array(centre).reshape(-1, 2),
        heading_rad=wrap_angle(np.array([0.0 if body is None else body.heading_rad for body in present])),
        velocity_mps=np.array(velocity).reshape(-1, 2),
        valid=np.array([body is not None for body in present], np.bool_),
        signal_states=signal_states,
        signal_valid=np.ones(len(signal_states), np.bool_),
    )
