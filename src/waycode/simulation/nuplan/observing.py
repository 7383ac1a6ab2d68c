"""Converts the devkit's history buffer to observations. Objects are read by attribute: nuPlan is not imported.

The history becomes a `LogWindow`, as the reader of nuPlan's files makes it, so that live and recorded scenes are built
by the same code.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from waycode.driving import Vehicle, VehicleState
from waycode.sources.nuplan.log import BOX_COLUMNS, EGO_COLUMNS, NUPLAN_STEP_S, TOLERANCE_US, LogWindow

Light = tuple[int, int, str]  # time in microseconds, fid of the lane connector, status


def window_of(
    ego_states: Sequence[Any],
    observations: Sequence[Any],
    *,
    lights: Iterable[Light],
    num_steps: int,
    roadblocks: Sequence[int],
) -> LogWindow:
    """The last steps of a history as the window of a log. Samples between steps are left out.

    Args:
        ego_states: the devkit's ego states, the latest last.
        observations: the devkit's tracked objects at the same times.
        lights: traffic lights seen so far.
        num_steps: length of the window; its last step is the latest sample.
        roadblocks: route of the ego, as fids.
    """
    now_us = ego_states[-1].time_us
    kept = {step: i for i, state in enumerate(ego_states) if (step := _step(state.time_us, now_us, num_steps)) >= 0}
    boxes = [
        (step, *_box(item)) for step, i in kept.items() for item in observations[i].tracked_objects.tracked_objects
    ]
    seen = {(_step(time_us, now_us, num_steps), connector): status for time_us, connector, status in lights}
    return LogWindow(
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
    """The step of a time; the last step is now. -1 if the time is before the window or between steps."""
    back = round((now_us - time_us) / (NUPLAN_STEP_S * 1e6))
    if not 0 <= back < num_steps or abs(now_us - time_us - back * NUPLAN_STEP_S * 1e6) > TOLERANCE_US:
        return -1
    return num_steps - 1 - back


def _ego(state: Any) -> tuple[float, ...]:
    """Values in the order of EGO_COLUMNS."""
    pose, velocity = state.rear_axle, state.dynamic_car_state.rear_axle_velocity_2d
    half = pose.heading / 2
    turn = (np.cos(half), 0.0, 0.0, np.sin(half))
    return pose.x, pose.y, *turn, velocity.x, velocity.y


def _box(item: Any) -> tuple[str, str, tuple[float, ...]]:
    """Track, category and values in the order of BOX_COLUMNS. Static objects may have no velocity."""
    centre, velocity = item.center, getattr(item, "velocity", None)
    moving = (np.nan, np.nan) if velocity is None else (velocity.x, velocity.y)
    values = (centre.x, centre.y, centre.heading, item.box.length, item.box.width, *moving)
    return item.track_token or item.token, item.tracked_object_type.fullname, values


def vehicle_of(state: Any) -> Vehicle:
    """The dimensions of the simulated ego."""
    parameters = state.car_footprint.vehicle_parameters
    return Vehicle(
        length_m=float(parameters.length),
        width_m=float(parameters.width),
        wheelbase_m=float(parameters.wheel_base),
        rear_axle_to_centre_m=float(parameters.rear_axle_to_center),
    )


def ego_of(state: Any, origin_m: tuple[float, float]) -> VehicleState:
    """The state of the ego in the scene frame."""
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
