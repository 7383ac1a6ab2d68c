"""Reactive traffic: vehicles follow their recorded paths at a speed controlled by IDM.

They keep their distance from road users on their path (the ego too), yield to those that will cross it before them,
and stop at red lights. There is no other right of way: a stop sign does not stop them. Where a recorded path ends they
drive on along the lanes. Pedestrians, cyclists and vehicles that never move are replayed.
Axes: A other road users, I reactive vehicles, G signalled lanes, N boxes, P points of a path.
"""

from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from waycode.driving import IdmConfig, Path, Vehicle, VehicleState, idm_acceleration
from waycode.driving.path import RED_STATES, lane_rows, path_rows, smooth_path, stop_points_on
from waycode.driving.route import STRAIGHT_ON_M
from waycode.scene import Scene, TrackType
from waycode.scene.geometry import arclengths, forward, project
from waycode.scene.lane_graph import LaneGraph
from waycode.simulation.traffic import Snapshot, recorded_snapshot

_PARKED_M = 1.0  # a vehicle that stays within this distance of its first position is parked
_LEAST_SPACING_M = 0.3  # closer points of a recorded path have no reliable direction
_SIDE_MARGIN_M = 0.3  # kept free at both sides of the path
_LOOK_AHEAD_M = 80.0
# Times at which crossing road users are forecast, up to the headway of 1.5 s that nuPlan's agents use.
_FORESIGHT_S = (0.0, 0.3, 0.6, 0.9, 1.2, 1.5)
_CROSSING_COS = np.cos(np.radians(30.0))  # a box at a larger angle to the path crosses it


@dataclass(frozen=True, kw_only=True)
class ReactiveVehicle:
    """The constant part of a reactive vehicle."""

    row: int  # among the other road users
    first_step: int  # first recorded step from the scene's current step on
    path: Path
    speed_mps: Float[np.ndarray, " P"]  # desired speed along the path
    stop_m: Float[np.ndarray, " G"]  # distance along the path to the stop line of each signal
    stops: Bool[np.ndarray, " G"]  # whether the signal is on the path


@dataclass(frozen=True, kw_only=True)
class IdmState:
    """The reactive vehicles at one step."""

    scene: Scene
    step: int
    vehicles: tuple[ReactiveVehicle, ...]
    snapshot: Snapshot  # of this step
    along_m: Float[np.ndarray, " I"]  # distance along each vehicle's path
    speed_mps: Float[np.ndarray, " I"]
    driving: Bool[np.ndarray, " I"]  # has appeared, and not left the world at the end of its path


@dataclass(frozen=True, kw_only=True)
class IdmTraffic:
    """Moving vehicles react by IDM, all other road users are replayed."""

    config: IdmConfig = field(default_factory=IdmConfig)

    def reset(self, scene: Scene) -> IdmState:
        vehicles = _reactive_vehicles(scene, self.config)
        count = len(vehicles)
        state = IdmState(
            scene=scene,
            step=scene.current_step,
            vehicles=vehicles,
            snapshot=recorded_snapshot(scene, scene.current_step),
            along_m=np.zeros(count),
            speed_mps=np.zeros(count),
            driving=np.zeros(count, np.bool_),
        )
        return _with_arrivals(state)

    def step(self, state: IdmState, ego: VehicleState, *, vehicle: Vehicle) -> tuple[IdmState, Snapshot]:
        dt_s = state.scene.dt_s
        acceleration = self._accelerations(state, ego, vehicle)
        speed = np.maximum(0.0, state.speed_mps + dt_s * acceleration)
        along = state.along_m + dt_s * (state.speed_mps + speed) / 2
        length = np.array([reactive.path.length_m for reactive in state.vehicles])
        moved = replace(
            state,
            step=state.step + 1,
            along_m=along,
            speed_mps=speed,
            driving=state.driving & (along < length),
            snapshot=recorded_snapshot(state.scene, state.step + 1, ids=state.snapshot.ids),
        )
        moved = _with_arrivals(moved)
        moved = replace(moved, snapshot=_reactive_snapshot(moved))
        return moved, moved.snapshot

    def _accelerations(self, state: IdmState, ego: VehicleState, vehicle: Vehicle) -> Float[np.ndarray, " I"]:
        """IDM's acceleration of each vehicle behind the nearest box or red light on its path."""
        count = len(state.vehicles)
        gap, leader, desired = np.full(count, np.inf), np.zeros(count), np.ones(count)
        boxes = _ForecastBoxes.of(state.snapshot, ego, vehicle)
        red = state.snapshot.signal_valid & np.isin(state.snapshot.signal_states, RED_STATES)
        for index in np.flatnonzero(state.driving):
            reactive, along = state.vehicles[index], float(state.along_m[index])
            desired[index] = reactive.speed_mps[reactive.path.index_at(np.array([along]))[0]]
            front = along + float(state.snapshot.length_m[reactive.row]) / 2
            width, speed = float(state.snapshot.width_m[reactive.row]), float(state.speed_mps[index])
            gap[index], leader[index] = boxes.leader_of(reactive, front, width_m=width, speed_mps=speed)
            stop = reactive.stop_m[red & reactive.stops & (reactive.stop_m > front - 0.5)].min(initial=np.inf) - front
            if stop < gap[index]:
                gap[index], leader[index] = stop, 0.0
        return idm_acceleration(state.speed_mps, desired, gap_m=gap, leader_mps=leader, config=self.config)


@dataclass(frozen=True, kw_only=True)
class _ForecastBoxes:
    """Boxes of all road users and of the ego, now and at later times at constant velocity."""

    after_s: Float[np.ndarray, " N"]  # 0 is now
    position_m: Float[np.ndarray, "N 2"]  # centre
    heading_rad: Float[np.ndarray, " N"]
    velocity_mps: Float[np.ndarray, "N 2"]
    half_size_m: Float[np.ndarray, "N 2"]  # half of length and width
    rows: Int[np.ndarray, " N"]  # among the other road users; the ego has the row after the last

    @staticmethod
    def of(snapshot: Snapshot, ego: VehicleState, vehicle: Vehicle) -> "_ForecastBoxes":
        there = snapshot.valid
        size = np.stack([snapshot.length_m[there], snapshot.width_m[there]], axis=-1)
        position = np.concatenate([snapshot.position_m[there], ego.centre_m(vehicle)]).astype(np.float64)
        velocity = np.concatenate([snapshot.velocity_mps[there], ego.centre_velocity_mps(vehicle)]).astype(np.float64)
        after, times = np.repeat(_FORESIGHT_S, len(position)), len(_FORESIGHT_S)
        return _ForecastBoxes(
            after_s=after,
            position_m=np.tile(position, (times, 1)) + after[:, None] * np.tile(velocity, (times, 1)),
            heading_rad=np.tile(np.concatenate([snapshot.heading_rad[there], ego.heading_rad]), times),
            velocity_mps=np.tile(velocity, (times, 1)),
            half_size_m=np.tile(np.concatenate([size, [[vehicle.length_m, vehicle.width_m]]]) / 2, (times, 1)),
            rows=np.tile(np.append(np.flatnonzero(there), len(there)), times),
        )

    def leader_of(
        self, reactive: ReactiveVehicle, front_m: float, *, width_m: float, speed_mps: float
    ) -> tuple[float, float]:
        """The gap to the nearest box ahead on a vehicle's path, and that box's speed along the path.

        Args:
            reactive: the vehicle.
            front_m: distance of its front bumper along its path.
            width_m: its width.
            speed_mps: its speed.
        """
        along, offset = reactive.path.project(self.position_m)
        heading = reactive.path.heading_rad[reactive.path.index_at(along)]
        cos, sin = np.cos(self.heading_rad - heading), np.sin(self.heading_rad - heading)
        half_length, half_width = self.half_size_m.T
        reach = half_length * np.abs(cos) + half_width * np.abs(sin)
        across = half_length * np.abs(sin) + half_width * np.abs(cos)
        gap = along - reach - front_m
        blocking = (np.abs(offset) < across + width_m / 2 + _SIDE_MARGIN_M) & (self.rows != reactive.row)
        blocking &= (along > front_m) & (gap < _LOOK_AHEAD_M)
        crosses_first = (np.abs(cos) < _CROSSING_COS) & (self.after_s * speed_mps < gap)
        blocking &= (self.after_s == 0) | crosses_first
        if not blocking.any():
            return np.inf, 0.0
        nearest = int(np.where(blocking, gap, np.inf).argmin())
        return float(gap[nearest]), float(max(0.0, self.velocity_mps[nearest] @ forward(heading)[nearest]))


def _reactive_vehicles(scene: Scene, config: IdmConfig) -> tuple[ReactiveVehicle, ...]:
    """All vehicles that move in the log and are observed at the current step or later."""
    tracks = scene.tracks
    others = np.flatnonzero(np.arange(len(tracks)) != tracks.ego_index)
    graph = scene.map.lanes.graph
    vehicles = []
    for row, track in enumerate(others):
        seen = np.flatnonzero(tracks.valid[track])
        later = seen[seen >= scene.current_step]
        if tracks.types[track] != TrackType.VEHICLE or len(later) == 0:
            continue
        position = tracks.position_m[track].astype(np.float64)
        if np.linalg.norm(position[seen] - position[seen[0]], axis=1).max() < _PARKED_M:
            continue
        last_heading = float(tracks.heading_rad[track, later[-1]])
        path = _path(scene, position[later], last_heading_rad=last_heading, graph=graph)
        stop, stops = stop_points_on(path, scene.signals, scene.map.lanes)
        speed = path.speed_profile(fallback_mps=config.fallback_speed_mps)
        vehicles.append(
            ReactiveVehicle(row=row, first_step=int(later[0]), path=path, speed_mps=speed, stop_m=stop, stops=stops)
        )
    return tuple(vehicles)


def _path(scene: Scene, position_m: Float[np.ndarray, "n 2"], *, last_heading_rad: float, graph: LaneGraph) -> Path:
    """A path over the recorded positions, then parallel to the lanes that lead on, then straight on.

    Args:
        scene: with the map.
        position_m: recorded positions.
        last_heading_rad: heading at the last of them.
        graph: the lanes of the map.
    """
    kept = [position_m[0]]
    for place in position_m[1:]:
        if np.linalg.norm(place - kept[-1]) > _LEAST_SPACING_M:
            kept.append(place)
    lane = int(graph.lane_at(kept[-1], np.array(last_heading_rad)))
    recorded = np.stack([*kept, kept[-1] + 2 * _LEAST_SPACING_M * forward(np.array(last_heading_rad))])
    if lane < 0:
        return smooth_path(_recorded_rows(recorded, scene, graph), beyond_m=_LOOK_AHEAD_M)
    onward = lane_rows(scene.map.lanes, graph.extend_straight([lane], length_m=STRAIGHT_ON_M))
    along, offset, _ = project(recorded[-1:], onward["points_m"])
    travelled = arclengths(onward["points_m"])
    step = np.gradient(onward["points_m"], axis=0)
    left = np.stack([-step[:, 1], step[:, 0]], axis=-1) / np.maximum(np.linalg.norm(step, axis=1), 1e-6)[:, None]
    onward["points_m"] += offset * left
    rest = onward[travelled > along[0] + 1.0]
    return smooth_path(np.concatenate([_recorded_rows(recorded, scene, graph), rest]), beyond_m=_LOOK_AHEAD_M)


def _recorded_rows(points_m: Float[np.ndarray, "n 2"], scene: Scene, graph: LaneGraph) -> Shaped[np.ndarray, " n"]:
    """A recorded line with the speed limits of the lanes it lies on, as wide as an ordinary lane."""
    lanes, count = scene.map.lanes, len(points_m)
    step = np.gradient(points_m, axis=0)
    lane = graph.lane_at(points_m, np.arctan2(step[:, 1], step[:, 0]))
    limit, known = np.zeros(count), np.zeros(count, np.bool_)
    limit[lane >= 0] = lanes.speed_limit_mps[lane[lane >= 0]]
    known[lane >= 0] = lanes.speed_limit_known[lane[lane >= 0]]
    return path_rows(points_m, limit_mps=limit, limit_known=known)


def _with_arrivals(state: IdmState) -> IdmState:
    """Vehicles that first appear at this step start as recorded."""
    along, speed, driving = state.along_m.copy(), state.speed_mps.copy(), state.driving.copy()
    for index, reactive in enumerate(state.vehicles):
        if reactive.first_step == state.step:
            along[index] = reactive.path.project(state.snapshot.position_m[reactive.row].astype(np.float64))[0]
            speed[index] = float(np.linalg.norm(state.snapshot.velocity_mps[reactive.row]))
            driving[index] = True
    return replace(state, along_m=along, speed_mps=speed, driving=driving)


def _reactive_snapshot(state: IdmState) -> Snapshot:
    """The recorded snapshot with the reactive vehicles where they are in the simulation."""
    snapshot = state.snapshot
    position, heading = snapshot.position_m.copy(), snapshot.heading_rad.copy()
    velocity, valid = snapshot.velocity_mps.copy(), snapshot.valid.copy()
    for index, reactive in enumerate(state.vehicles):
        row = reactive.row
        if reactive.first_step >= state.step:
            continue  # has not appeared, or appears now as recorded
        valid[row] = state.driving[index]
        point, angle = reactive.path.pose_at(state.along_m[index : index + 1], np.zeros(1))
        position[row], heading[row] = point[0], angle[0]
        velocity[row] = state.speed_mps[index] * forward(angle)[0]
    return replace(snapshot, position_m=position, heading_rad=heading, velocity_mps=velocity, valid=valid)
