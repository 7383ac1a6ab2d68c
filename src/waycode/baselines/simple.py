"""Constant velocity as a lower and log replay as an upper reference. Axes: n recorded, T planned samples."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from waycode.driving import Observation, Trajectory
from waycode.scene import Scene, WaycodeError
from waycode.scene.geometry import arclengths, forward, interpolate, project

_NEARBY_STEPS = 30  # the ego is matched with this part of the log: it may pass the same place again later
_SAME_PLACE_M = 1e-6  # float64 rounding
_CATCH_UP_S = 2.0  # time in which a plan compensates for the tracker's lag


@dataclass(frozen=True, kw_only=True)
class ConstantVelocity:
    """Drives straight ahead at the current speed."""

    horizon_s: float = 4.0  # duration of a plan

    def reset(self, observation: Observation) -> None:
        return None

    def plan(self, state: None, observation: Observation) -> tuple[Trajectory, None]:
        ego, dt_s = observation.ego, observation.scene.dt_s
        time_s = np.arange(round(self.horizon_s / dt_s) + 1) * dt_s
        heading = np.full(len(time_s), ego.heading_rad[0])
        speed = np.full(len(time_s), max(0.0, float(ego.speed_mps[0])))
        position = ego.centre_m(observation.vehicle) + (speed * time_s)[:, None] * forward(heading)
        return Trajectory(position_m=position, heading_rad=heading, speed_mps=speed), None


class ReplayError(WaycodeError):
    """A log that cannot be replayed."""


@dataclass(frozen=True)
class LogReplay:
    """Drives the recorded future of one scene's ego. Unlike all other drivers it knows the log.

    A tracker lags. If plans started at the log's current position, a lagging ego would leave the log's path in bends.
    A plan therefore starts at the point of the path nearest to the ego and catches up with the log.
    """

    log: Scene  # with the recorded future
    horizon_s: float = 4.0  # duration of a plan

    def __post_init__(self) -> None:
        if self.log.tracks.ego_index is None:
            raise ReplayError(f"scene {self.log.id!r} has no ego to replay")

    def reset(self, observation: Observation) -> None:
        if observation.scene.id != self.log.id:
            raise ReplayError(f"the log of scene {self.log.id!r} cannot be replayed in scene {observation.scene.id!r}")

    def plan(self, state: None, observation: Observation) -> tuple[Trajectory, None]:
        scene, path = observation.scene, self._path
        time_s = np.arange(round(self.horizon_s / scene.dt_s) + 1) * scene.dt_s
        along = path.along_at(scene.current_step + np.arange(len(time_s)))
        lag_m = along[0] - path.nearest(observation.ego.centre_m(observation.vehicle), step=scene.current_step)
        along = along - lag_m * np.maximum(0.0, 1 - time_s / _CATCH_UP_S)
        position, heading = path.poses_at(np.maximum.accumulate(along))  # an ego ahead of the log waits
        speed = (np.gradient(position, scene.dt_s, axis=0) * forward(heading)).sum(axis=-1)
        return Trajectory(position_m=position, heading_rad=heading, speed_mps=speed), None

    @cached_property
    def _path(self) -> "_RecordedPath":
        tracks, ego = self.log.tracks, self.log.tracks.ego_index
        steps = np.flatnonzero(tracks.valid[ego])
        points = tracks.position_m[ego, steps].astype(np.float64)
        heading = np.unwrap(tracks.heading_rad[ego, steps].astype(np.float64))
        return _RecordedPath(points_m=points, heading_rad=heading, along_m=arclengths(points), steps=steps)


@dataclass(frozen=True, kw_only=True)
class _RecordedPath:
    """The path of the log."""

    points_m: Float[np.ndarray, "n 2"]
    heading_rad: Float[np.ndarray, " n"]
    along_m: Float[np.ndarray, " n"]  # arclength
    steps: Int[np.ndarray, " n"]  # at which the points were recorded

    def along_at(self, steps: Int[np.ndarray, " T"]) -> Float[np.ndarray, " T"]:
        """Arclength of the log at steps; after its end it goes on at its last speed."""
        last_m = self.along_m[-1] - self.along_m[-2] if len(self.steps) > 1 else 0.0
        return np.interp(steps, self.steps, self.along_m) + last_m * np.maximum(0, steps - self.steps[-1])

    def nearest(self, centre_m: Float[np.ndarray, "1 2"], *, step: int) -> float:
        """Arclength of the point nearest to a vehicle, near where the log is at `step`.

        A vehicle that is where the log is has no lag. The nearest point may be another one: positions recorded while
        standing are jittery.
        """
        own = np.flatnonzero(self.steps == step)
        if len(own) and np.linalg.norm(self.points_m[own[0]] - centre_m[0]) < _SAME_PLACE_M:
            return float(self.along_m[own[0]])
        near = np.flatnonzero(np.abs(self.steps - min(step, int(self.steps[-1]))) <= _NEARBY_STEPS)
        if len(near) < 2:
            return float(self.along_m[near[0]])
        return float(self.along_m[near[0]] + project(centre_m, self.points_m[near])[0][0])

    def poses_at(self, along_m: Float[np.ndarray, " T"]) -> tuple[Float[np.ndarray, "T 2"], Float[np.ndarray, " T"]]:
        """Positions and headings at arclengths; straight ahead beyond the end."""
        heading = np.interp(along_m, self.along_m, self.heading_rad)
        beyond = np.maximum(0.0, along_m - self.along_m[-1])
        return interpolate(self.points_m, along_m) + beyond[:, None] * forward(heading), heading
