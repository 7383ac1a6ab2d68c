"""The record of a finished closed-loop run: the ego, the other road users, and the expert (the recorded ego).

`simulate` returns it, `waycode.simulation.metrics` scores it. All positions are in the scene frame.
Axes: T simulated steps, A other road users.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float

from waycode.driving import Vehicle
from waycode.scene import MapFeatures, Route, Scene, Tracks
from waycode.scene.frames import rotate
from waycode.scene.geometry import box_corners, forward
from waycode.simulation.errors import SimulationError, require_ego

# Fields of Tracks with one value per track, and with one per track and step.
PER_TRACK = ("types", "length_m", "width_m")
PER_STEP = ("x_m", "y_m", "heading_rad", "vx_mps", "vy_mps", "valid")
_EGO_SERIES = (
    "time_s", "rear_axle_m", "heading_rad", "velocity_mps", "acceleration_mps2", "yaw_rate_radps",
    "yaw_acceleration_radps2",
)  # fields of EgoHistory with a value per step  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class EgoHistory:
    """The ego over T steps, one or more."""

    time_s: Float[np.ndarray, " T"]  # increasing; 0 is the start of the run
    rear_axle_m: Float[np.ndarray, "T 2"]
    heading_rad: Float[np.ndarray, " T"]
    velocity_mps: Float[np.ndarray, "T 2"]  # of the rear axle, in the ego's own frame (ahead, left)
    acceleration_mps2: Float[np.ndarray, "T 2"]  # of the rear axle, in the ego's own frame
    yaw_rate_radps: Float[np.ndarray, " T"]
    yaw_acceleration_radps2: Float[np.ndarray, " T"]
    vehicle: Vehicle

    def __post_init__(self) -> None:
        if len(self.time_s) == 0 or (np.diff(self.time_s) <= 0).any():
            raise ValueError(f"expected one or more increasing times, got {self.time_s}")

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
        """Acceleration of the centre of the box (ahead, left): the rear axle's plus what turning adds at the centre."""
        arm_m = self.vehicle.rear_axle_to_centre_m
        turning = np.stack([-(self.yaw_rate_radps**2) * arm_m, self.yaw_acceleration_radps2 * arm_m], axis=-1)
        return self.acceleration_mps2 + turning

    @property
    def corners_m(self) -> Float[np.ndarray, "T 4 2"]:
        """Corners of the box: front left, front right, rear right, rear left."""
        size = np.ones(len(self))
        return box_corners(
            self.centre_m, self.heading_rad, length_m=self.vehicle.length_m * size, width_m=self.vehicle.width_m * size
        )


@dataclass(frozen=True, kw_only=True)
class History:
    """One finished run."""

    scene_id: str
    ego: EgoHistory
    tracks: Tracks  # the other road users (no ego), over the same T steps as `ego`
    map: MapFeatures
    route: Route | None  # the route that the driver was given
    expert: EgoHistory  # the recorded ego
    failure: str | None = None  # why the driver failed, in one sentence; such a run scores 0

    def __post_init__(self) -> None:
        if self.tracks.num_steps != len(self.ego):
            raise ValueError(f"the tracks have {self.tracks.num_steps} steps, expected {len(self.ego)} as the ego has")
        if self.tracks.ego_index is not None:
            raise ValueError(f"track {self.tracks.ego_index} is the ego, expected other road users only: see others_of")

    def until(self, end: int) -> "History":
        """The first `end` steps of the run."""

        def first(ego: EgoHistory) -> EgoHistory:
            return replace(ego, **{name: getattr(ego, name)[:end] for name in _EGO_SERIES})

        tracks = replace(self.tracks, **{name: getattr(self.tracks, name)[:, :end] for name in PER_STEP})
        return replace(self, ego=first(self.ego), expert=first(self.expert), tracks=tracks)


def ego_from_centre(
    centre_m: Float[np.ndarray, "T 2"],
    heading_rad: Float[np.ndarray, " T"],
    *,
    velocity_mps: Float[np.ndarray, "T 2"],
    time_s: Float[np.ndarray, " T"],
    vehicle: Vehicle,
) -> EgoHistory:
    """The history of a box that was observed at its centre. Accelerations and yaw rates are finite differences.

    Args:
        centre_m: centre of the box.
        heading_rad: heading of the box.
        velocity_mps: velocity of the centre in the scene frame.
        time_s: times of the observations.
        vehicle: size and axles.
    """
    heading = np.unwrap(np.asarray(heading_rad, np.float64))
    yaw_rate = _rate(heading, time_s)
    own = rotate(np.asarray(velocity_mps, np.float64), -heading)
    # Turning moves the centre sideways, but not the rear axle.
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
    """The recorded ego of a scene from step `first` to step `last`, inclusive: the expert.

    Raises:
        SimulationError: the scene has no ego, or it was not observed at all of these steps.
    """
    tracks, ego = scene.tracks, require_ego(scene)
    steps = np.arange(first, last + 1)
    if not tracks.valid[ego, steps].all():
        unseen = steps[~tracks.valid[ego, steps]].tolist()
        raise SimulationError(
            f"the ego of scene {scene.id!r} was not observed at steps {unseen}, expected {first} to {last}"
        )
    return ego_from_centre(
        tracks.position_m[ego, steps].astype(np.float64),
        tracks.heading_rad[ego, steps].astype(np.float64),
        velocity_mps=np.stack([tracks.vx_mps, tracks.vy_mps], axis=-1)[ego, steps].astype(np.float64),
        time_s=(steps - scene.current_step) * scene.dt_s,
        vehicle=Vehicle.of_size(length_m=float(tracks.length_m[ego]), width_m=float(tracks.width_m[ego])),
    )


def others_of(tracks: Tracks, *, first: int, last: int) -> Tracks:
    """All tracks but the ego, from step `first` to step `last`, inclusive."""
    keep: Bool[np.ndarray, " A"] = np.arange(len(tracks)) != tracks.ego_index
    return replace(
        tracks,
        ids=tuple(name for name, kept in zip(tracks.ids, keep, strict=True) if kept),
        to_predict=np.zeros(0, np.int32),
        ego_index=None,
        **{name: getattr(tracks, name)[keep] for name in PER_TRACK},
        **{name: getattr(tracks, name)[keep, first : last + 1] for name in PER_STEP},
    )


def _rate(values: Float[np.ndarray, "T *rest"], time_s: Float[np.ndarray, " T"]) -> Float[np.ndarray, "T *rest"]:
    """Derivative by central differences; 0 if there is only one step."""
    if len(time_s) < 2:
        return np.zeros_like(values)
    return np.asarray(np.gradient(values, time_s, axis=0))
