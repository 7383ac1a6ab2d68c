"""Roads, cars and observations for the tests of driving and simulation."""

from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from waycode import Dataset
from waycode.driving import Driver, LqrTracker, Observation, Trajectory, Vehicle, VehicleState
from waycode.objectives import Candidates, Setting
from waycode.scene import GraphOrigin, Lanes, MapFeatures, Polylines, Route, Scene, Signals, SignalState, Tracks
from waycode.simulation.rollout import step

STEPS = 71
NOW = 10
DT_S = 0.1


def car_tracks(x_m: np.ndarray, y_m: np.ndarray, *, valid: np.ndarray | None = None) -> Tracks:
    """Cars of 4.5 m x 1.9 m that head along +x, from their positions [A, T]; the first is the ego."""
    count, steps = x_m.shape
    speed = np.gradient(x_m, DT_S, axis=1)
    seen = np.ones((count, steps), np.bool_) if valid is None else valid
    return Tracks(
        ids=tuple(f"car{index}" for index in range(count)),
        types=np.ones(count, np.int8),
        length_m=np.full(count, 4.5, np.float32),
        width_m=np.full(count, 1.9, np.float32),
        x_m=(x_m * seen).astype(np.float32),
        y_m=(y_m * seen).astype(np.float32),
        heading_rad=np.zeros((count, steps), np.float32),
        vx_mps=(speed * seen).astype(np.float32),
        vy_mps=np.zeros((count, steps), np.float32),
        valid=seen,
        to_predict=np.zeros(0, np.int32),
        ego_index=0,
    )


def straight_road(length_m: float = 300.0, *, limit_mps: float = 12.0) -> MapFeatures:
    """Two lanes of 3.5 m along +x from -50 m, the right one on y = 0, both with a piece in a junction from 50 m on."""
    pieces = [(-50.0, 50.0, 0.0), (50.0, length_m, 0.0), (-50.0, 50.0, 3.5), (50.0, length_m, 3.5)]
    lines = [np.array([[start, y], [(start + end) / 2, y], [end, y]]) for start, end, y in pieces]
    count = len(lines)
    lanes = Lanes(
        ids=("right", "right on", "left", "left on"),
        types=np.full(count, 2, np.int8),
        centrelines=Polylines.of(lines),
        speed_limit_mps=np.full(count, limit_mps, np.float32),
        speed_limit_known=np.ones(count, np.bool_),
        width_m=np.full(count, 3.5, np.float32),
        width_known=np.ones(count, np.bool_),
        in_junction=np.array([False, True, False, True]),
        successors=np.array([[0, 1], [2, 3]], np.int32),
        left_neighbours=np.array([[0, 2], [1, 3]], np.int32),
        right_neighbours=np.array([[2, 0], [3, 1]], np.int32),
        graph_origin=GraphOrigin.RECORDED,
    )
    area = np.array([[-80.0, -2.0], [length_m, -2.0], [length_m, 5.5], [-80.0, 5.5]])
    return MapFeatures(lanes=lanes, drivable_areas=Polylines.of([area]))


def road_scene(
    *,
    speed_mps: float = 10.0,
    others: tuple[tuple[float, float, float], ...] = (),
    light: SignalState | None = None,
    steps: int = STEPS,
) -> Scene:
    """The ego drives on the right lane, at x = 0 now; others are (x now, y, speed); a light may stand at x = 50."""
    time_s = (np.arange(steps) - NOW) * DT_S
    cars = [(0.0, 0.0, speed_mps), *others]
    x = np.stack([start + speed * time_s for start, _, speed in cars])
    y = np.stack([np.full(steps, place) for _, place, _ in cars])
    signals = Signals()
    if light is not None:
        signals = Signals(
            lanes=np.array([1], np.int32),
            stop_point_m=np.array([[50.0, 0.0]], np.float32),
            states=np.full((1, steps), light, np.int8),
            valid=np.ones((1, steps), np.bool_),
        )
    return Scene(
        id="road",
        source="made-up",
        dt_s=DT_S,
        current_step=NOW,
        origin_m=(0.0, 0.0),
        tracks=car_tracks(x, y),
        map=straight_road(),
        signals=signals,
        route=Route(lanes=np.array([0, 1], np.int32), sections=np.array([0, 1], np.int32)),
    )


LONG = 131  # 12 s: IDM takes its time for the last metres


def one_car(
    x_m: float = 0.0, y_m: float = 0.0, *, heading_rad: float = 0.0, speed_mps: float = 10.0, steering_rad: float = 0.0
) -> VehicleState:
    """A single car at its rear axle."""
    return VehicleState(
        rear_axle_m=np.array([[x_m, y_m]]),
        heading_rad=np.array([heading_rad]),
        speed_mps=np.array([speed_mps]),
        acceleration_mps2=np.zeros(1),
        steering_rad=np.array([steering_rad]),
        yaw_rate_radps=np.array([speed_mps * np.tan(steering_rad) / Vehicle().wheelbase_m]),
    )


def observation_of(scene: Scene, *, vehicle: Vehicle | None = None) -> Observation:
    """What a driver observes of the scene now."""
    vehicle = vehicle or Vehicle.of_size(length_m=4.5, width_m=1.9)
    tracks, seen = scene.tracks, slice(0, scene.current_step + 1)
    over_time = {
        name: getattr(tracks, name)[:, seen] for name in ("x_m", "y_m", "heading_rad", "vx_mps", "vy_mps", "valid")
    }
    signals = scene.signals
    if len(signals):
        signals = replace(signals, states=signals.states[:, seen], valid=signals.valid[:, seen])
    ego = one_car(
        float(tracks.x_m[0, scene.current_step]) - vehicle.rear_axle_to_centre_m,
        float(tracks.y_m[0, scene.current_step]),
        speed_mps=float(tracks.vx_mps[0, scene.current_step]),
    )
    shown = replace(scene, tracks=replace(tracks, **over_time), signals=signals)
    return Observation(scene=shown, ego=ego, vehicle=vehicle)


def planned(driver: Driver[Any], observation: Observation) -> Trajectory:
    """The plan of the first step of a scenario."""
    plan, _ = driver.plan(driver.reset(observation), observation)
    return plan


PLANNED_STEPS = 40  # 4 s


def drives_along(observation: Observation, *speeds_mps: float, y_m: float = 0.0) -> Trajectory:
    """Drives of 4 s straight along x from where the ego is, each at a constant speed."""
    time_s = np.arange(PLANNED_STEPS + 1) * DT_S
    x = float(observation.ego.rear_axle_m[0, 0]) + np.array(speeds_mps)[:, None] * time_s
    return Trajectory(
        position_m=np.stack([x, np.full_like(x, y_m)], axis=-1),
        heading_rad=np.zeros_like(x),
        speed_mps=np.broadcast_to(np.array(speeds_mps)[:, None], x.shape),
        point="rear-axle",
    )


def setting_of(observation: Observation) -> Setting:
    """What objectives see of an observation, with the exact state of the ego."""
    return Setting(
        scene=observation.scene,
        agent=observation.agent,
        known_vehicle=observation.vehicle,
        known_state=observation.ego,
    )


def driven_candidates(observation: Observation, drives: Trajectory) -> Candidates:
    """Drives as objectives see them."""
    return Candidates.of_trajectory(drives, setting_of(observation))


def sample_scenes(count: int) -> list[Scene]:
    """The first of the bundled scenes."""
    return Dataset(Path(str(files("waycode"))) / "samples" / "sumo")[:count]


def first_command_mps2(plan: Trajectory, observation: Observation) -> float:
    """The acceleration that nuPlan's tracker asks of the car for the first step of a plan."""
    vehicle, before = observation.vehicle, observation.ego
    after = step(before, plan, tracker=LqrTracker(), vehicle=vehicle, dt_s=DT_S)
    arrived = DT_S / (DT_S + vehicle.acceleration_lag_s)  # the share of a command that arrives within a step
    change = float(after.acceleration_mps2[0] - before.acceleration_mps2[0])
    return float(before.acceleration_mps2[0]) + change / arrived
