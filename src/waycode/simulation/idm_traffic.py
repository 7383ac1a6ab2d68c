"""Traffic that reacts: vehicles follow the path that they took in the log, at a speed of their own choosing (IDM).

They keep their distance from whatever stands or drives on their path, the ego included, let who is about to cross it
before them pass, and stop at red lights. They know no other right of way: a stop sign does not stop them. Where a
recorded path ends they drive on along the lanes. Pedestrians, cyclists and vehicles that never move are replayed.
Axes: A others, I vehicles that react, G signalled lanes, B boxes.
"""

from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from waycode.driving import IdmConfig, Path, Vehicle, VehicleState, idm_acceleration
from waycode.driving.path import RED_STATES, lane_rows, path_rows, smooth_path, stop_points_on
from waycode.driving.route import STRAIGHT_ON_M
from waycode.scene import Scene, TrackType
from waycode.scene.geometry import arclengths, project
from waycode.scene.lane_graph import LaneGraph
from waycode.simulation.traffic import Snapshot, recorded_snapshot

MOVING_M = 1.0  # who stays within this of where it was first seen is parked
LEAST_STEP_M = 0.3  # points of a recorded path that are nearer to each other have no direction
MARGIN_M = 0.3  # kept free at both sides of the path
LOOK_AHEAD_M = 80.0
# nuPlan's drivers see each other where they will be within a headway of 1.5 s; ours so see all who cross their path.
FORESIGHT_S = (0.0, 0.3, 0.6, 0.9, 1.2, 1.5)
CROSSING_COS = np.cos(np.radians(30.0))


@dataclass(frozen=True, kw_only=True)
class ReactiveVehicle:
    """What stays the same of a vehicle that reacts."""

    row: int  # among the others
    first_step: int  # when the log first sees it, from the current step on
    path: Path
    speed_mps: Float[np.ndarray, " P"]  # wanted along the path
    stop_m: Float[np.ndarray, " G"]  # stop points along the path
    stops: Bool[np.ndarray, " G"]  # which of them are on it


@dataclass(frozen=True, kw_only=True)
class IdmState:
    """The drivers' progress along their paths and their speeds, at a step; who left its path's end is gone."""

    scene: Scene
    step: int
    drivers: tuple[ReactiveVehicle, ...]
    snapshot: Snapshot
    along_m: Float[np.ndarray, " I"]
    speed_mps: Float[np.ndarray, " I"]
    driving: Bool[np.ndarray, " I"]


@dataclass(frozen=True, kw_only=True)
class IdmTraffic:
    """Vehicles react, the rest is replayed."""

    config: IdmConfig = field(default_factory=IdmConfig)

    def reset(self, scene: Scene) -> IdmState:
        drivers = _drivers(scene, self.config)
        count = len(drivers)
        state = IdmState(
            scene=scene,
            step=scene.current_step,
            drivers=drivers,
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
        length = np.array([driver.path.length_m for driver in state.drivers])
        moved = replace(
            state,
            step=state.step + 1,
            along_m=along,
            speed_mps=speed,
            driving=state.driving & (along < length),
            snapshot=recorded_snapshot(state.scene, state.step + 1, ids=state.snapshot.ids),
        )
        moved = _with_arrivals(moved)
        moved = replace(moved, snapshot=_driven(moved))
        return moved, moved.snapshot

    def _accelerations(self, state: IdmState, ego: VehicleState, vehicle: Vehicle) -> Float[np.ndarray, " I"]:
        """What each driver does about the nearest thing on its path."""
        count = len(state.drivers)
        gap, leader, wanted = np.full(count, np.inf), np.zeros(count), np.ones(count)
        things = _Things.of(state.snapshot, ego, vehicle)
        red = state.snapshot.signal_valid & np.isin(state.snapshot.signal_states, RED_STATES)
        for index in np.flatnonzero(state.driving):
            driver, along = state.drivers[index], float(state.along_m[index])
            wanted[index] = driver.speed_mps[driver.path.index_at(np.array([along]))[0]]
            front = along + float(state.snapshot.length_m[driver.row]) / 2
            width, speed = float(state.snapshot.width_m[driver.row]), float(state.speed_mps[index])
            gap[index], leader[index] = things.nearest(driver, front, width_m=width, speed_mps=speed)
            stop = driver.stop_m[red & driver.stops & (driver.stop_m > front - 0.5)].min(initial=np.inf) - front
            if stop < gap[index]:
                gap[index], leader[index] = stop, 0.0
        return idm_acceleration(state.speed_mps, wanted, gap_m=gap, leader_mps=leader, config=self.config)


@dataclass(frozen=True, kw_only=True)
class _Things:
    """Boxes in the world, the others' and the ego's: where they are, and where they will be at constant velocity."""

    after_s: Float[np.ndarray, " B"]
    position_m: Float[np.ndarray, "B 2"]
    heading_rad: Float[np.ndarray, " B"]
    velocity_mps: Float[np.ndarray, "B 2"]
    half_size_m: Float[np.ndarray, "B 2"]
    rows: Int[np.ndarray, " B"]  # among the others; the ego has the row after the last

    @staticmethod
    def of(snapshot: Snapshot, ego: VehicleState, vehicle: Vehicle) -> "_Things":
        there = snapshot.valid
        size = np.stack([snapshot.length_m[there], snapshot.width_m[there]], axis=-1)
        position = np.concatenate([snapshot.position_m[there], ego.centre_m(vehicle)]).astype(np.float64)
        velocity = np.concatenate([snapshot.velocity_mps[there], ego.centre_velocity_mps(vehicle)]).astype(np.float64)
        after, times = np.repeat(FORESIGHT_S, len(position)), len(FORESIGHT_S)
        return _Things(
            after_s=after,
            position_m=np.tile(position, (times, 1)) + after[:, None] * np.tile(velocity, (times, 1)),
            heading_rad=np.tile(np.concatenate([snapshot.heading_rad[there], ego.heading_rad]), times),
            velocity_mps=np.tile(velocity, (times, 1)),
            half_size_m=np.tile(np.concatenate([size, [[vehicle.length_m, vehicle.width_m]]]) / 2, (times, 1)),
            rows=np.tile(np.append(np.flatnonzero(there), len(there)), times),
        )

    def nearest(
        self, driver: ReactiveVehicle, front_m: float, *, width_m: float, speed_mps: float
    ) -> tuple[float, float]:
        """The gap to the nearest box on the path before this bumper, and that box's speed along the path."""
        along, offset = driver.path.project(self.position_m)
        heading = driver.path.heading_rad[driver.path.index_at(along)]
        cos, sin = np.cos(self.heading_rad - heading), np.sin(self.heading_rad - heading)
        half_length, half_width = self.half_size_m.T
        reach = half_length * np.abs(cos) + half_width * np.abs(sin)
        across = half_length * np.abs(sin) + half_width * np.abs(cos)
        gap = along - reach - front_m
        blocking = (np.abs(offset) < across + width_m / 2 + MARGIN_M) & (self.rows != driver.row)
        blocking &= (along > front_m) & (gap < LOOK_AHEAD_M)
        crosses_first = (np.abs(cos) < CROSSING_COS) & (self.after_s * speed_mps < gap)
        blocking &= (self.after_s == 0) | crosses_first
        if not blocking.any():
            return np.inf, 0.0
        nearest = int(np.where(blocking, gap, np.inf).argmin())
        ahead = np.array([np.cos(heading[nearest]), np.sin(heading[nearest])])
        return float(gap[nearest]), float(max(0.0, self.velocity_mps[nearest] @ ahead))


def _drivers(scene: Scene, config: IdmConfig) -> tuple[ReactiveVehicle, ...]:
    """Every vehicle that moves at some time of the log and is seen after the current step."""
    tracks = scene.tracks
    others = np.flatnonzero(np.arange(len(tracks)) != tracks.ego_index)
    index = scene.map.lanes.graph
    drivers = []
    for row, track in enumerate(others):
        seen = np.flatnonzero(tracks.valid[track])
        later = seen[seen >= scene.current_step]
        if tracks.types[track] != TrackType.VEHICLE or len(later) == 0:
            continue
        position = tracks.position_m[track].astype(np.float64)
        if np.linalg.norm(position[seen] - position[seen[0]], axis=1).max() < MOVING_M:
            continue
        last_heading = float(tracks.heading_rad[track, later[-1]])
        path = _path(scene, position[later], first_heading_rad=last_heading, index=index)
        stop, stops = stop_points_on(path, scene.signals, scene.map.lanes)
        speed = path.speed_profile(fallback_mps=config.fallback_speed_mps)
        driver = ReactiveVehicle(
            row=row, first_step=int(later[0]), path=path, speed_mps=speed, stop_m=stop, stops=stops
        )
        drivers.append(driver)
    return tuple(drivers)


def _path(scene: Scene, position_m: Float[np.ndarray, "n 2"], *, first_heading_rad: float, index: LaneGraph) -> Path:
    """The recorded positions, then the rest of the lane at whose side the recording ends, then straight on."""
    kept = [position_m[0]]
    for place in position_m[1:]:
        if np.linalg.norm(place - kept[-1]) > LEAST_STEP_M:
            kept.append(place)
    lane = int(index.lane_at(kept[-1], np.array(first_heading_rad)))
    ahead = np.array([np.cos(first_heading_rad), np.sin(first_heading_rad)])
    recorded = np.stack([*kept, kept[-1] + 2 * LEAST_STEP_M * ahead])
    if lane < 0:
        return smooth_path(_recorded_rows(recorded, scene, index), beyond_m=LOOK_AHEAD_M)
    onward = lane_rows(scene.map.lanes, index.extend_straight([lane], length_m=STRAIGHT_ON_M))
    along, offset, _ = project(recorded[-1:], onward["points_m"])
    travelled = arclengths(onward["points_m"])
    step = np.gradient(onward["points_m"], axis=0)
    left = np.stack([-step[:, 1], step[:, 0]], axis=-1) / np.maximum(np.linalg.norm(step, axis=1), 1e-6)[:, None]
    onward["points_m"] += offset * left
    rest = onward[travelled > along[0] + 1.0]
    return smooth_path(np.concatenate([_recorded_rows(recorded, scene, index), rest]), beyond_m=LOOK_AHEAD_M)


def _recorded_rows(points_m: Float[np.ndarray, "n 2"], scene: Scene, index: LaneGraph) -> Shaped[np.ndarray, " n"]:
    """A recorded line with the speed limits of the lanes under it."""
    lanes, count = scene.map.lanes, len(points_m)
    step = np.gradient(points_m, axis=0)
    lane = index.lane_at(points_m, np.arctan2(step[:, 1], step[:, 0]))
    limit, known = np.zeros(count), np.zeros(count, np.bool_)
    limit[lane >= 0] = lanes.speed_limit_mps[lane[lane >= 0]]
    known[lane >= 0] = lanes.speed_limit_known[lane[lane >= 0]]
    return path_rows(points_m, limit_mps=limit, limit_known=known)


def _with_arrivals(state: IdmState) -> IdmState:
    """Those who are first seen at this step start from where the log has them."""
    along, speed, driving = state.along_m.copy(), state.speed_mps.copy(), state.driving.copy()
    for index, driver in enumerate(state.drivers):
        if driver.first_step == state.step:
            along[index] = driver.path.project(state.snapshot.position_m[driver.row].astype(np.float64))[0]
            speed[index] = float(np.linalg.norm(state.snapshot.velocity_mps[driver.row]))
            driving[index] = True
    return replace(state, along_m=along, speed_mps=speed, driving=driving)


def _driven(state: IdmState) -> Snapshot:
    """The log's snapshot with the drivers where they now are."""
    snapshot = state.snapshot
    position, heading = snapshot.position_m.copy(), snapshot.heading_rad.copy()
    velocity, valid = snapshot.velocity_mps.copy(), snapshot.valid.copy()
    for index, driver in enumerate(state.drivers):
        row, started = driver.row, driver.first_step < state.step
        if not started:
            continue  # not yet there, or just arrived where the log has it
        valid[row] = state.driving[index]
        place, angle = driver.path.pose_at(state.along_m[index : index + 1], np.zeros(1))
        position[row], heading[row] = place[0], angle[0]
        velocity[row] = state.speed_mps[index] * np.array([np.cos(angle[0]), np.sin(angle[0])])
    return replace(snapshot, position_m=position, heading_rad=heading, velocity_mps=velocity, valid=valid)
