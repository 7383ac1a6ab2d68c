"""Drives a planner through a scene, step by step."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Bool, Float

from waycode.driving import (
    Driver,
    LqrTracker,
    Observation,
    Reference,
    Tracker,
    Trajectory,
    Vehicle,
    VehicleState,
    expert_route,
)
from waycode.driving.trajectory import fault_of
from waycode.scene import Route, Scene
from waycode.simulation.errors import SimulationError
from waycode.simulation.history import EgoHistory, History, others_of, recorded_ego
from waycode.simulation.recorder import Recorder, initial_ego
from waycode.simulation.traffic import Traffic, TrafficState


@dataclass(frozen=True, kw_only=True)
class SimulationConfig:
    """How long to drive, and how the car follows its plans."""

    horizon_s: float = 15.0  # or as long as the ego was recorded, and on the map
    tracker: Tracker = field(default_factory=LqrTracker)
    keep_plans: bool = False

    def __post_init__(self) -> None:
        if not self.horizon_s > 0:
            raise ValueError(f"the horizon is {self.horizon_s} s, expected more than 0")


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """A finished run."""

    history: History  # what the metrics judge; its `failure` says why the planner failed, if it did
    scene: Scene  # what was simulated, as a scene that ends with the run
    planning_s: Float[np.ndarray, " n"]  # how long each call of the planner took
    plans: tuple[Trajectory, ...] = ()  # if they are kept


def step(
    state: VehicleState, trajectory: Trajectory, *, tracker: Tracker, vehicle: Vehicle, dt_s: float
) -> VehicleState:
    """The ego one step later, for a plan that it follows from now on."""
    reference = Reference.of([trajectory], vehicle=vehicle)
    return next(iter(tracker.follow(state, reference, num_steps=1, vehicle=vehicle, dt_s=dt_s)))


def simulate(
    scene: Scene,
    planner: Driver,
    *,
    traffic: Traffic[TrafficState],
    config: SimulationConfig | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Rollout:
    """Drives from the scene's current step on. A planner that fails is not asked again: the car brakes to a stand."""
    config = config or SimulationConfig()
    num_steps = _num_steps(scene, config)
    vehicle = _vehicle(scene)
    route = scene.route if scene.route is not None else expert_route(scene)
    recorder = Recorder(scene, num_steps=num_steps, route=route)
    ego, world = initial_ego(scene, vehicle=vehicle), traffic.reset(scene)
    states, plans = [ego], []
    planning_s: list[float] = []
    memory: object = None
    failure: str | None = None
    for _ in range(num_steps):
        plan = None
        if failure is None:
            began = clock()
            observation = Observation(scene=recorder.scene(), ego=ego, vehicle=vehicle, memory=memory)
            plan, failure = _planned(planner, observation, at_s=len(planning_s) * scene.dt_s)
            planning_s.append(clock() - began)
        if plan is None:
            plan = config.tracker.emergency_stop(ego, vehicle=vehicle, dt_s=scene.dt_s)
        memory = plan.memory
        ego = step(ego, plan, tracker=config.tracker, vehicle=vehicle, dt_s=scene.dt_s)
        world, snapshot = traffic.step(world, ego, vehicle=vehicle)
        recorder.add(snapshot, ego, vehicle=vehicle)
        states.append(ego)
        if config.keep_plans:
            plans.append(replace(plan, memory=None))
    history = _history(scene, recorder.scene(), states, route=route, vehicle=vehicle, failure=failure)
    return Rollout(history=history, scene=recorder.scene(), planning_s=np.array(planning_s), plans=tuple(plans))


def _planned(planner: Driver, observation: Observation, *, at_s: float) -> tuple[Trajectory | None, str | None]:
    """The plan, or else why there is none."""
    try:
        plan = planner.plan(observation)
    except Exception as error:  # whatever a planner does, the other scenarios are still to be driven
        return None, f"after {at_s:.1f} s the planner raised {type(error).__name__}: {error}"
    fault = fault_of(plan)
    return (plan, None) if fault is None else (None, f"after {at_s:.1f} s {fault}")


def _num_steps(scene: Scene, config: SimulationConfig) -> int:
    """How many steps can be driven and compared with the log."""
    ego, now = scene.tracks.ego_index, scene.current_step
    if ego is None:
        raise SimulationError(f"scene {scene.id!r} has no ego: a simulation needs one")
    there = scene.tracks.valid[ego, now:] & _on_map(scene, scene.tracks.position_m[ego, now:])
    observed = len(there) if there.all() else int(there.argmin())
    num_steps = min(round(config.horizon_s / scene.dt_s), observed - 1)
    if num_steps < 1:
        raise SimulationError(
            f"the ego of scene {scene.id!r} is observed at {observed} steps from the current one on, expected 2 or more"
        )
    return num_steps


def _on_map(scene: Scene, position_m: Float[np.ndarray, "n 2"]) -> Bool[np.ndarray, " n"]:
    """Which of the recorded ego's positions the map reaches: it may be cut out around the first of them.

    Where the road goes on and the map does not, nobody can drive, and nobody can be judged.
    """
    points = scene.map.lanes.centrelines.points_m
    if len(points) == 0:
        return np.ones(len(position_m), np.bool_)
    reach_m = np.linalg.norm(points - position_m[0], axis=1).max()
    return np.asarray(np.linalg.norm(position_m - position_m[0], axis=1) <= reach_m)


def _vehicle(scene: Scene) -> Vehicle:
    tracks, ego = scene.tracks, scene.tracks.ego_index
    return Vehicle.of_size(length_m=float(tracks.length_m[ego]), width_m=float(tracks.width_m[ego]))


def _history(
    scene: Scene,
    driven: Scene,
    states: list[VehicleState],
    *,
    route: Route | None,
    vehicle: Vehicle,
    failure: str | None,
) -> History:
    first, last = scene.current_step, scene.current_step + len(states) - 1
    return History(
        scene_id=scene.id,
        ego=_ego_states(states, vehicle=vehicle, dt_s=scene.dt_s),
        tracks=others_of(driven.tracks, first=first, last=last),
        map=scene.map,
        route=route,
        expert=recorded_ego(scene, first=first, last=last),
        failure=failure,
    )


def _ego_states(states: list[VehicleState], *, vehicle: Vehicle, dt_s: float) -> EgoHistory:
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
