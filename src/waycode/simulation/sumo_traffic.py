"""Traffic that lives in SUMO: everyone reacts as the drivers did that the scene was recorded from (reactive).

The scene's world is built again from its seed and replayed up to the current step; from there on the ego is put where
the simulation has it, and SUMO drives the rest: it yields, queues, changes lanes, walks and switches the lights.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int8

from waycode.driving import Vehicle, VehicleState
from waycode.scene import Scene
from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import forward
from waycode.simulation.errors import SimulationError
from waycode.simulation.sumo_bodies import Body
from waycode.simulation.sumo_shadow import Placement
from waycode.simulation.sumo_worker import SumoProcess
from waycode.simulation.sumo_world import Sighting, ego_row
from waycode.simulation.traffic import Snapshot, recorded_snapshot
from waycode.sources.sumo.rebuild import origin_of

MAX_DRIFT_M = 2.0  # smoothing moves road users by decimetres; more than this is another world
OTHER_WORLD = "it was made by another version of SUMO or Waycode; generate it again"


@dataclass(frozen=True, kw_only=True)
class SumoState:
    """What the ego did so far, and everyone that was seen near it: SUMO's state follows from the first."""

    scene: Scene
    moves: tuple[Placement, ...]
    snapshot: Snapshot
    bodies: dict[str, Body]  # of those who are there
    centre_m: Float[np.ndarray, " 2"]  # of the map
    reach_m: float  # how far the map goes from there


class SumoTraffic:
    """Drives the others of generated scenes in a SUMO process, which is started when first needed.

    The process is only a cache of where the last run is: any state can be stepped at any time, but going back to an
    earlier one costs a replay. `close` ends it, as does the end of this object or of its process.
    """

    def __init__(self) -> None:
        self._process: SumoProcess | None = None

    def reset(self, scene: Scene) -> SumoState:
        origin_of(scene)  # refuses scenes of other sources before a process is started
        ego, tracks, now = ego_row(scene), scene.tracks, scene.current_step
        sighting = self._sighting(scene, ())
        bodies = _recorded_bodies(scene, sighting)
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
        front = ego.rear_axle_m[0] + vehicle.front_m * forward(ego.heading_rad)[0] + state.scene.origin_m
        move = Placement(
            front_m=(float(front[0]), float(front[1])),
            heading_rad=float(ego.heading_rad[0]),
            length_m=vehicle.length_m,
            width_m=vehicle.width_m,
        )
        moves = (*state.moves, move)
        sighting = self._sighting(state.scene, moves)
        bodies = _pulled(state, sighting)
        snapshot = _snapshot(state, bodies, signal_states=sighting.signal_states)
        return replace(state, moves=moves, bodies=bodies, snapshot=snapshot), snapshot

    @property
    def pid(self) -> int | None:
        """Of SUMO's process, while there is one."""
        return None if self._process is None else self._process.pid

    def close(self) -> None:
        """Ends SUMO's process."""
        if self._process is not None:
            self._process.close()
        self._process = None

    def _sighting(self, scene: Scene, moves: tuple[Placement, ...]) -> Sighting:
        if self._process is None or self._process.is_closed:
            self._process = SumoProcess()
        return self._process.sighting(scene, moves)


def _recorded_bodies(scene: Scene, sighting: Sighting) -> dict[str, Body]:
    """The others at the current step, where the scene has them: there the replay must have led."""
    tracks, now = scene.tracks, scene.current_step
    seen = {name: index for index, name in enumerate(sighting.ids)}
    bodies = {}
    for row in np.flatnonzero(tracks.valid[:, now] & (np.arange(len(tracks)) != tracks.ego_index)):
        name = tracks.ids[row]
        if name not in seen:
            raise SimulationError(f"scene {scene.id!r}, made again by SUMO, has no {name!r}: {OTHER_WORLD}")
        body = Body.at_centre(
            sighting.kinds[seen[name]],
            tracks.position_m[row, now].astype(np.float64) + scene.origin_m,
            heading_rad=float(tracks.heading_rad[row, now]),
            velocity_mps=(float(tracks.vx_mps[row, now]), float(tracks.vy_mps[row, now])),
        )
        drift_m = float(np.linalg.norm(body.bumper_m - sighting.position_m[seen[name]]))
        if drift_m > MAX_DRIFT_M:
            raise SimulationError(
                f"in scene {scene.id!r}, made again by SUMO, {name!r} is {drift_m:.1f} m off: {OTHER_WORLD}"
            )
        bodies[name] = body
    return bodies


def _pulled(state: SumoState, sighting: Sighting) -> dict[str, Body]:
    """Everyone that was recorded or seen before, and who else is on the map now."""
    known = set(state.snapshot.ids)
    near = np.linalg.norm(sighting.position_m - state.centre_m, axis=-1) < state.reach_m
    bodies = {}
    for index, name in enumerate(sighting.ids):
        bumper = sighting.position_m[index]
        if name in state.bodies:
            bodies[name] = state.bodies[name].pulled(bumper, dt_s=state.scene.dt_s)
        elif name in known or near[index]:
            bodies[name] = Body.at_bumper(
                sighting.kinds[index],
                bumper,
                heading_rad=float(sighting.heading_rad[index]),
                speed_mps=float(sighting.speed_mps[index]),
            )
    return bodies


def _snapshot(state: SumoState, bodies: dict[str, Body], *, signal_states: Int8[np.ndarray, " G"]) -> Snapshot:
    """The rows of the last snapshot with new values, and rows for who is new."""
    last = state.snapshot
    known = set(last.ids)
    new = tuple(name for name in bodies if name not in known)
    kinds = [bodies[name].kind for name in new]
    ids = (*last.ids, *new) if new else last.ids  # the same object while no one is new: the recorder counts on it
    there = [bodies.get(name) for name in ids]
    centre = [np.zeros(2) if body is None else body.centre_m - state.scene.origin_m for body in there]
    velocity = [(0.0, 0.0) if body is None else body.velocity_mps for body in there]
    return Snapshot(
        ids=ids,
        types=np.append(last.types, [kind.track_type for kind in kinds]).astype(np.int8),
        length_m=np.append(last.length_m, [kind.length_m for kind in kinds]),
        width_m=np.append(last.width_m, [kind.width_m for kind in kinds]),
        position_m=np.array(centre).reshape(-1, 2),
        heading_rad=wrap_angle(np.array([0.0 if body is None else body.heading_rad for body in there])),
        velocity_mps=np.array(velocity).reshape(-1, 2),
        valid=np.array([body is not None for body in there], np.bool_),
        signal_states=signal_states,
        signal_valid=np.ones(len(signal_states), np.bool_),
    )
