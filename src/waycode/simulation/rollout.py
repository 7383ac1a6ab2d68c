"""`simulate`: a driver drives through a scene, step by step."""

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from waycode.driving import (
    Driver,
    LqrTracker,
    Observation,
    Tracker,
    Trajectory,
    Vehicle,
    VehicleState,
    expert_route,
)
from waycode.driving.trajectory import trajectory_fault
from waycode.driving.vehicle import recorded_state
from waycode.planner import Planner
from waycode.scene import Scene
from waycode.scene.arguments import check_type
from waycode.simulation.drivers import LatentDriver
from waycode.simulation.errors import SimulationError, require_ego
from waycode.simulation.history import EgoHistory, History, others_of, recorded_ego
from waycode.simulation.metrics import ScenarioScore, score_run
from waycode.simulation.recorder import Recorder
from waycode.simulation.traffic import ReplayTraffic, Traffic


@dataclass(frozen=True, kw_only=True)
class SimulationConfig:
    """How long to drive, and how the ego follows its plans."""

    horizon_s: float = 15.0  # at most; a drive ends where the recording or the map ends
    tracker: Tracker = field(default_factory=LqrTracker)  # follows the plans; nuPlan's by default
    keep_plans: bool = False  # store the trajectory of every step, and what it was chosen among, in the result

    def __post_init__(self) -> None:
        if not self.horizon_s > 0:
            raise ValueError(f"the horizon is {self.horizon_s} s, expected more than 0")


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """A finished drive."""

    history: History  # the input of the metrics; `history.failure` says why the driver failed, if it did
    scene: Scene  # the simulated scene, which ends with the drive
    planning_s: Float[np.ndarray, " n"]  # duration of each call of the driver
    plans: tuple[Trajectory, ...] = ()  # of every step, with `SimulationConfig.keep_plans`
    candidates: tuple[tuple[Trajectory, ...], ...] = ()  # `candidates` of the driver's state at every step, likewise
    traceback: str | None = None  # of the driver's exception, if it raised one


def score(rollout: Rollout) -> ScenarioScore:
    """nuPlan's closed-loop score of a drive."""
    check_type(Rollout, SimulationError, rollout=rollout)
    return score_run(rollout.history)


def step(
    state: VehicleState, trajectory: Trajectory, *, tracker: Tracker, vehicle: Vehicle, dt_s: float
) -> VehicleState:
    """The ego's state after one step of following a trajectory."""
    reference = Trajectory.stack([trajectory])
    return next(iter(tracker.follow(state, reference, num_steps=1, vehicle=vehicle, dt_s=dt_s)))


def simulate(
    scene: Scene,
    driver: Driver[Any] | Planner,
    *,
    traffic: Traffic[Any] | None = None,
    config: SimulationConfig | None = None,
    strict: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> Rollout:
    """Drives from the scene's current step on.

    Args:
        scene: the scene with an ego; its recorded future is the expert's drive.
        driver: plans at every step. A `Planner` drives by latent token search with the default objective and policy
            of `LatentDriver`.
        traffic: how the others move; by default as recorded.
        config: duration and tracker.
        strict: raise the driver's exception, or `SimulationError` for an invalid trajectory. By default a driver that
            fails is not called again, the ego brakes to standstill, and the result has the failure and its traceback.
        clock: measures the driver's time, in seconds.

    Raises:
        SimulationError: the scene has no ego, or its ego is recorded at less than two steps from the current one on.
    """
    check_type(Scene, SimulationError, scene=scene)
    if not isinstance(driver, Planner) and not callable(getattr(driver, "plan", None)):
        raise SimulationError(f"the driver is {driver!r:.60}, expected a Planner, or an object with `reset` and `plan`")
    config, world_model = config or SimulationConfig(), traffic or ReplayTraffic()
    if isinstance(driver, Planner):
        driver = LatentDriver(planner=driver)
    ego_index, num_steps = require_ego(scene), _num_steps(scene, config)
    tracks = scene.tracks
    vehicle = Vehicle.of_size(length_m=float(tracks.length_m[ego_index]), width_m=float(tracks.width_m[ego_index]))
    route = scene.route if scene.route is not None else expert_route(scene)
    recorder = Recorder(scene, num_steps=num_steps, route=route)
    ego, world = recorded_state(scene, ego_index, vehicle=vehicle), world_model.reset(scene)
    states, plans, candidates, planning_s = [ego], [], [], []
    driver_state: Any = None
    failure = trace = None
    for index in range(num_steps):
        plan = None
        if failure is None:
            began = clock()
            observation = Observation(scene=recorder.scene(), ego=ego, vehicle=vehicle)
            try:
                driver_state = driver.reset(observation) if index == 0 else driver_state
                plan, driver_state = driver.plan(driver_state, observation)
                fault = trajectory_fault(plan)
            except Exception as error:  # a driver may fail in any way; other scenarios are still to be driven
                if strict:
                    raise
                fault, trace = f"the driver raised {type(error).__name__}: {error}", traceback.format_exc()
            planning_s.append(clock() - began)
            if fault is not None:
                plan, failure = None, f"after {index * scene.dt_s:.1f} s {fault}"
                if strict:
                    raise SimulationError(failure)
        if plan is None:
            plan = config.tracker.emergency_stop(ego, vehicle=vehicle, dt_s=scene.dt_s)
        ego = step(ego, plan, tracker=config.tracker, vehicle=vehicle, dt_s=scene.dt_s)
        world, snapshot = world_model.step(world, ego, vehicle=vehicle)
        recorder.add(snapshot, ego, vehicle=vehicle)
        states.append(ego)
        if config.keep_plans:
            plans.append(plan)
            candidates.append(tuple(getattr(driver_state, "candidates", ())))
    driven, first, last = recorder.scene(), scene.current_step, scene.current_step + num_steps
    history = History(
        scene_id=scene.id,
        ego=_ego_history(states, vehicle=vehicle, dt_s=scene.dt_s),
        tracks=others_of(driven.tracks, first=first, last=last),
        map=scene.map,
        route=route,
        expert=recorded_ego(scene, first=first, last=last),
        failure=failure,
    )
    return Rollout(
        history=history,
        scene=driven,
        planning_s=np.array(planning_s),
        plans=tuple(plans),
        candidates=tuple(candidates),
        traceback=trace,
    )


def _num_steps(scene: Scene, config: SimulationConfig) -> int:
    """Number of steps that can be driven and compared with the recording."""
    ego, now = require_ego(scene), scene.current_step
    there = scene.tracks.valid[ego, now:] & _on_map(scene, scene.tracks.position_m[ego, now:])
    observed = len(there) if there.all() else int(there.argmin())
    num_steps = min(round(config.horizon_s / scene.dt_s), observed - 1)
    if num_steps < 1:
        raise SimulationError(
            f"the ego of scene {scene.id!r} is observed at {observed} steps from the current one on, expected 2 or more"
        )
    return num_steps


def _on_map(scene: Scene, position_m: Float[np.ndarray, "n 2"]) -> Bool[np.ndarray, " n"]:
    """Which of the recorded ego's positions are on the map, which may be cropped around the first of them.

    Beyond the end of the map a drive can be neither planned nor scored.
    """
    points = scene.map.lanes.centrelines.points_m
    if len(points) == 0:
        return np.ones(len(position_m), np.bool_)
    reach_m = np.linalg.norm(points - position_m[0], axis=1).max()
    return np.asarray(np.linalg.norm(position_m - position_m[0], axis=1) <= reach_m)


def _ego_history(states: list[VehicleState], *, vehicle: Vehicle, dt_s: float) -> EgoHistory:
    speed = np.concatenate([state.speed_mps for state in states])
    yaw_rate = np.concatenate([state.yaw_rate_radps for state in states])
    acceleration = np.concatenate([state.acceleration_mps2 for state in states])
    return EgoHistory(
        time_s=np.arange(len(states)) * dt_s,
        rear_axle_m=np.concatenate([state.rear_axle_m for state in states]),
        heading_rad=np.unwrap(np.concatenate([state.heading_rad for state in states])),
        velocity_mps=np.stack([speed, np.zeros_like(speed)], axis=-1),
        acceleration_mps2=np.stack([acceleration, speed * yaw_rate], axis=-1),
        yaw_rate_radps=yaw_rate,
        yaw_acceleration_radps2=np.diff(yaw_rate, prepend=yaw_rate[:1]) / dt_s,
        vehicle=vehicle,
    )
