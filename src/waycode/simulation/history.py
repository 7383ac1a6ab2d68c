"""What happened in a finished closed-loop run: the ego's states, the others beside it, and what the expert had done.

A simulator fills it, `waycode.simulation.metrics` judges it. All positions are in the scene frame.
Axes: T simulated steps, S steps of the expert, A other road users.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float

from waycode.driving import Vehicle
from waycode.driving.vehicle import forward
from waycode.scene import MapFeatures, Route, Scene, Tracks, WaycodeError
from waycode.scene.frames import rotate
from waycode.scene.geometry import box_corners


class HistoryError(WaycodeError):
    """A scene or a run that cannot be judged."""


@dataclass(frozen=True, kw_only=True)
class EgoHistory:
    """The ego over T steps. The pose is that of the rear axle; velocity and acceleration are the rear axle's too,
    along and across the car (x ahead, y left)."""

    time_s: Float[np.ndarray, " T"]
    rear_axle_m: Float[np.ndarray, "T 2"]
    heading_rad: Float[np.ndarray, " T"]
    velocity_mps: Float[np.ndarray, "T 2"]
    acceleration_mps2: Float[np.ndarray, "T 2"]
    yaw_rate_radps: Float[np.ndarray, " T"]
    yaw_acceleration_radps2: Float[np.ndarray, " T"]
    vehicle: Vehicle

    def __post_init__(self) -> None:
        if len(self.time_s) == 0 or (np.diff(self.time_s) <= 0).any():
            raise ValueError(f"times must increase and be one or more, got {self.time_s}")

    def __len__(self) -> int:
        return len(self.time_s)

    @property
    def speed_mps(self) -> Float[np.ndarray, " T"]:
        return np.linalg.norm(self.velocity_mps, axis=1)

    @property
    def centre_m(self) -> Float[np.ndarray, "T 2"]:
        return self.rear_axle_m + self.vehicle.rear_axle_to_centre_m * forward(self.heading_rad)

    @property
    def centre_acceleration_mps2(self) -> Float[np.ndarray, "T 2"]:
        """Acceleration of the middle of the box, along and across the car: turning pulls it inwards and swings it."""
        arm_m = self.vehicle.rear_axle_to_centre_m
        turning = np.stack([-(self.yaw_rate_radps**2) * arm_m, self.yaw_acceleration_radps2 * arm_m], axis=-1)
        return self.acceleration_mps2 + turning

    @property
    def corners_m(self) -> Float[np.ndarray, "T 4 2"]:
        """Front left, front right, rear right, rear left."""
        size = np.ones(len(self))
        return box_corners(
            self.centre_m, self.heading_rad, length_m=self.vehicle.length_m * size, width_m=self.vehicle.width_m * size
        )


@dataclass(frozen=True, kw_only=True)
class History:
    """One finished run. `tracks` are the others only (no ego among them), over the same T steps as `ego`."""

    scene_id: str
    ego: EgoHistory
    tracks: Tracks
    map: MapFeatures
    route: Route | None
    expert: EgoHistory
    failure: str | None = None  # why the planner failed, in one sentence; such a run scores 0

    def __post_init__(self) -> None:
        if self.tracks.num_steps != len(self.ego):
            raise ValueError(f"the others have {self.tracks.num_steps} steps, the ego has {len(self.ego)}")
        if self.tracks.ego_index is not None:
            raise ValueError("the ego is among the other tracks: see others_of")


def ego_from_centre(
    centre_m: Float[np.ndarray, "T 2"],
    heading_rad: Float[np.ndarray, " T"],
    *,
    velocity_mps: Float[np.ndarray, "T 2"],
    time_s: Float[np.ndarray, " T"],
    vehicle: Vehicle,
) -> EgoHistory:
    """States of a box seen at its centre, with its velocity in the scene frame; the rest by finite differences."""
    heading = np.unwrap(np.asarray(heading_rad, np.float64))
    yaw_rate = _rate(heading, time_s)
    own = rotate(np.asarray(velocity_mps, np.float64), -heading)
    # Turning moves the centre sideways, the rear axle not.
    own = own - np.stack([np.zeros_like(yaw_rate), yaw_rate * vehicle.rear_axle_to_centre_m], axis=-1)
    in_scene = rotate(own, heading)
    return EgoHistory(
        time_s=time_s,
        rear_axle_m=np.asarray(centre_m, np.float64) - vehicle.rear_axle_to_centre_m * forward(heading),
        heading_rad=heading,
        velocity_mps=own,
        acceleration_mps2=rotate(_rate(in_scene, time_s), -heading),
        yaw_rate_radps=yaw_rate,
        yaw_acceleration_radps2=_rate(yaw_rate, time_s),
        vehicle=vehicle,
    )


def recorded_ego(scene: Scene, *, first: int, last: int) -> EgoHistory:
    """What the ego of the scene did from step `first` to step `last` (included): the expert, or a replay of the log."""
    tracks = scene.tracks
    ego = tracks.ego_index
    if ego is None:
        raise HistoryError(f"scene {scene.id} has no ego: a closed-loop run needs one")
    steps = np.arange(first, last + 1)
    if not tracks.valid[ego, steps].all():
        unseen = steps[~tracks.valid[ego, steps]].tolist()
        raise HistoryError(
            f"the ego of scene {scene.id} was not observed at steps {unseen}, expected {first} to {last}"
        )
    return ego_from_centre(
        tracks.position_m[ego, steps].astype(np.float64),
        tracks.heading_rad[ego, steps].astype(np.float64),
        velocity_mps=np.stack([tracks.vx_mps, tracks.vy_mps], axis=-1)[ego, steps].astype(np.float64),
        time_s=(steps - scene.current_step) * scene.dt_s,
        vehicle=Vehicle.of_size(length_m=float(tracks.length_m[ego]), width_m=float(tracks.width_m[ego])),
    )


def others_of(tracks: Tracks, *, first: int, last: int) -> Tracks:
    """All tracks but the ego, from step `first` to step `last` (included)."""
    keep: Bool[np.ndarray, " A"] = np.arange(len(tracks)) != tracks.ego_index
    per_track = {name: getattr(tracks, name)[keep] for name in ("types", "length_m", "width_m")}
    over_time = {
        name: getattr(tracks, name)[keep, first : last + 1]
        for name in ("x_m", "y_m", "heading_rad", "vx_mps", "vy_mps", "valid")
    }
    ids = tuple(name for name, kept in zip(tracks.ids, keep, strict=True) if kept)
    none = np.zeros(0, np.int32)
    return replace(tracks, ids=ids, to_predict=none, ego_index=None, **per_track, **over_time)


def replayed(scene: Scene, *, last: int | None = None) -> History:
    """The run in which the ego does what it had done in the log: from the current step to the last observed one."""
    end = scene.num_steps - 1 if last is None else last
    ego = recorded_ego(scene, first=scene.current_step, last=end)
    return History(
        scene_id=scene.id,
        ego=ego,
        tracks=others_of(scene.tracks, first=scene.current_step, last=end),
        map=scene.map,
        route=scene.route,
        expert=ego,
    )


def _rate(values: Float[np.ndarray, "T *rest"], time_s: Float[np.ndarray, " T"]) -> Float[np.ndarray, "T *rest"]:
    """Change per second by central differences (none where there is one step only)."""
    if len(time_s) < 2:
        return np.zeros_like(values)
    return np.asarray(np.gradient(values, time_s, axis=0))
