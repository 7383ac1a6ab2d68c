"""Where the others will be if they keep their velocity, or brake on: J others, F steps (step 0 is now)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, Int8

from waycode.driving import Observation, Path
from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import box_corners

REACH_M = 100.0
BRAKING_SEEN_S = 0.5  # over which braking is measured
BRAKING_ON_S = 1.0  # for which it goes on
SAME_WAY_RAD = np.radians(45)


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Boxes that move straight on."""

    types: Int8[np.ndarray, " J"]
    position_m: Float[np.ndarray, "J F 2"]
    heading_rad: Float[np.ndarray, " J"]
    velocity_mps: Float[np.ndarray, "J 2"]
    length_m: Float[np.ndarray, " J"]
    width_m: Float[np.ndarray, " J"]

    def __len__(self) -> int:
        return len(self.types)

    @property
    def radius_m(self) -> Float[np.ndarray, " J"]:
        return np.hypot(self.length_m, self.width_m) / 2

    def corners_m(self, which: np.ndarray, steps: np.ndarray) -> Float[np.ndarray, "n 4 2"]:
        """The boxes of some of the others at some steps, pair by pair."""
        return box_corners(
            self.position_m[which, steps],
            self.heading_rad[which],
            length_m=self.length_m[which],
            width_m=self.width_m[which],
        )


@dataclass(frozen=True, kw_only=True)
class OnPath:
    """The same boxes as seen along a path: where they begin, how far to the side they reach, how fast they go along."""

    along_m: Float[np.ndarray, "J F"]
    rear_m: Float[np.ndarray, "J F"]
    offset_m: Float[np.ndarray, "J F"]
    across_m: Float[np.ndarray, "J F"]  # half the width that they take across the path
    speed_mps: Float[np.ndarray, "J F"]

    def blocking(self, offset_m: Float[np.ndarray, " K"], *, half_width_m: float) -> Bool[np.ndarray, "K J F"]:
        """Which boxes are in the way of K cars that drive at these offsets from the path."""
        aside = np.abs(self.offset_m[None] - offset_m[:, None, None])
        return aside < self.across_m[None] + half_width_m


def forecast(observation: Observation, *, num_steps: int, brakes: bool = False) -> Forecast:
    """The others that are seen now, near the ego.

    With `brakes`, those who drive the ego's way and have been slowing down do so for another second. Not others:
    straight on, who comes the other way round a bend would be in the ego's lane.
    """
    scene = observation.scene
    tracks, now = scene.tracks, scene.current_step
    position = tracks.position_m[:, now].astype(np.float64)
    near = np.linalg.norm(position - observation.ego.rear_axle_m, axis=1) < REACH_M
    kept = np.flatnonzero(tracks.valid[:, now] & near & (np.arange(len(tracks)) != tracks.ego_index))
    velocity = np.stack([tracks.vx_mps[kept, now], tracks.vy_mps[kept, now]], axis=-1).astype(np.float64)
    time_s = np.arange(num_steps + 1) * scene.dt_s
    driving_s = np.broadcast_to(time_s, (len(kept), num_steps + 1))
    if brakes:
        driving_s = _while_braking_s(observation, kept, time_s)
    return Forecast(
        types=tracks.types[kept],
        position_m=position[kept, None] + driving_s[..., None] * velocity[:, None],
        heading_rad=tracks.heading_rad[kept, now].astype(np.float64),
        velocity_mps=velocity,
        length_m=tracks.length_m[kept].astype(np.float64),
        width_m=tracks.width_m[kept].astype(np.float64),
    )


def _while_braking_s(
    observation: Observation, rows: Int[np.ndarray, " J"], time_s: Float[np.ndarray, " F"]
) -> Float[np.ndarray, "J F"]:
    """For how long one would have to drive at the velocity of now to get as far as by braking as before."""
    scene = observation.scene
    tracks, now = scene.tracks, scene.current_step
    before = max(0, now - round(BRAKING_SEEN_S / scene.dt_s))
    speed, earlier = (tracks.speed_mps[rows, step].astype(np.float64) for step in (now, before))
    seen_s = max(now - before, 1) * scene.dt_s
    turned = wrap_angle(tracks.heading_rad[rows, now] - observation.ego.heading_rad)
    leads = tracks.valid[rows, before] & (np.abs(turned) < SAME_WAY_RAD)
    rate = np.where(leads, np.maximum(earlier - speed, 0.0) / seen_s, 0.0)
    lost = rate / np.maximum(speed, 1e-3)  # share of the speed per second
    braking_s = np.minimum(BRAKING_ON_S, 1 / np.maximum(lost, 1e-9))[:, None]  # nobody brakes longer than to a stand
    while_s = np.minimum(time_s[None], braking_s)
    after_s = (time_s[None] - while_s) * (1 - lost[:, None] * braking_s)
    return while_s - lost[:, None] * while_s**2 / 2 + after_s


def along_path(others: Forecast, path: Path) -> OnPath:
    """The forecast in the coordinates of a path."""
    along, offset = path.project(others.position_m)
    heading = path.heading_rad[path.index_at(along)]
    relative = others.heading_rad[:, None] - heading
    cos, sin = np.abs(np.cos(relative)), np.abs(np.sin(relative))
    half_length, half_width = others.length_m[:, None] / 2, others.width_m[:, None] / 2
    velocity = others.velocity_mps[:, None]
    return OnPath(
        along_m=along,
        rear_m=along - half_length * cos - half_width * sin,
        offset_m=offset,
        across_m=half_length * sin + half_width * cos,
        speed_mps=velocity[..., 0] * np.cos(heading) + velocity[..., 1] * np.sin(heading),
    )
