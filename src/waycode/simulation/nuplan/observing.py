"""From the devkit's history buffer to what our planners see. It is read by names alone: nothing of nuPlan is imported.

The window of a log (`sources.nuplan.log.Window`) is what our reader of nuPlan's files makes scenes of, so a live
scene and a recorded one are built by the same code. B boxes, n steps with a frame.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from waycode.driving import Vehicle, VehicleState
from waycode.sources.nuplan.log import BOX_COLUMNS, EGO_COLUMNS, STEP_S, TOLERANCE_US, Window

Light = tuple[int, int, str]  # time in microseconds, lane connector, status


def window_of(
    ego_states: Sequence[Any],
    observations: Sequence[Any],
    *,
    lights: Iterable[Light],
    num_steps: int,
    roadblocks: Sequence[int],
) -> Window:
    """The last `num_steps` steps of a history whose latest sample is now; samples between steps are left out."""
    now_us = ego_states[-1].time_us
    kept = {step: i for i, state in enumerate(ego_states) if (step := _step(state.time_us, now_us, num_steps)) >= 0}
    boxes = [
        (step, *_box(item)) for step, i in kept.items() for item in observations[i].tracked_objects.tracked_objects
    ]
    seen = {(_step(time_us, now_us, num_steps), connector): status for time_us, connector, status in lights}
    return Window(
        num_steps=num_steps,
        steps=np.array(list(kept), np.int64),
        ego=np.array([_ego(ego_states[i]) for i in kept.values()], np.float64).reshape(-1, len(EGO_COLUMNS)),
        box_steps=np.array([box[0] for box in boxes], np.int64),
        boxes=np.array([box[3] for box in boxes], np.float64).reshape(-1, len(BOX_COLUMNS)),
        box_tracks=tuple(box[1] for box in boxes),
        box_categories=tuple(box[2] for box in boxes),
        lights=tuple(sorted((step, connector, status) for (step, connector), status in seen.items() if step >= 0)),
        roadblocks=tuple(roadblocks),
        tags=(),
        map_names=(),
    )


def _step(time_us: int, now_us: int, num_steps: int) -> int:
    """The step of a time, the last one being now; below 0 if it is too long ago or lies between steps."""
    back = round((now_us - time_us) / (STEP_S * 1e6))
    if not 0 <= back < num_steps or abs(now_us - time_us - back * STEP_S * 1e6) > TOLERANCE_US:
        return -1
    return num_steps - 1 - back


def _ego(state: Any) -> tuple[float, ...]:
    """A state in the order of EGO_COLUMNS."""
    pose, moving = state.rear_axle, state.dynamic_car_state
    velocity = moving.rear_axle_velocity_2d
    half = pose.heading / 2
    turn = (np.cos(half), 0.0, 0.0, np.sin(half))
    return pose.x, pose.y, *turn, velocity.x, velocity.y, moving.angular_velocity


def _box(item: Any) -> tuple[str, str, tuple[float, ...]]:
    """Track, category, and the values in the order of BOX_COLUMNS; a static object may have no velocity."""
    centre, velocity = item.center, getattr(item, "velocity", None)
    moving = (np.nan, np.nan) if velocity is None else (velocity.x, velocity.y)
    values = (centre.x, centre.y, centre.heading, item.box.length, item.box.width, *moving)
    return item.track_token or item.token, item.tracked_object_type.fullname, values


def vehicle_of(state: Any) -> Vehicle:
    """The car that is simulated."""
    parameters = state.car_footprint.vehicle_parameters
    return Vehicle(
        length_m=float(parameters.length),
        width_m=float(parameters.width),
        wheelbase_m=float(parameters.wheel_base),
        rear_axle_to_centre_m=float(parameters.rear_axle_to_center),
    )


def ego_of(state: Any, origin_m: tuple[float, float]) -> VehicleState:
    """The car's state in the scene frame."""
    pose, moving = state.rear_axle, state.dynamic_car_state

    def single(value: float) -> Float[np.ndarray, " 1"]:
        return np.array([value], np.float64)

    return VehicleState(
        rear_axle_m=np.array([[pose.x - origin_m[0], pose.y - origin_m[1]]], np.float64),
        heading_rad=single(pose.heading),
        speed_mps=single(moving.rear_axle_velocity_2d.x),
        acceleration_mps2=single(moving.rear_axle_acceleration_2d.x),
        steering_rad=single(state.tire_steering_angle),
        yaw_rate_radps=single(moving.angular_velocity),
    )
