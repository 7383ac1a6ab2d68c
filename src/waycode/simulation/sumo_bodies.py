"""From SUMO's front bumpers to bodies with wheels, one step at a time.

Recorded scenes are smoothed over past and future (`waycode.sources.sumo.smoothing`); a live world has no future. So the
bumper stays where SUMO has it, and the axles are dragged behind it: SUMO's headings jump from piece to piece of a lane,
those of dragged bodies do not. A body starts from its recorded pose: there is no jump where the live world takes over.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from waycode.scene import TrackType
from waycode.scene.frames import wrap_angle
from waycode.sources.sumo.road_users import RoadUserType
from waycode.sources.sumo.smoothing import dragged_heading

# SUMO's pedestrians turn within a step and jump where a crossing begins; people take about a second to turn around.
WALKING_TURN_RADPS = 3.0
MAX_WALKING_MPS = 2.5
STANDING_M = 0.01  # in one step


@dataclass(frozen=True, kw_only=True)
class Body:
    """One road user at one step, in the world frame; `axle_m` is the front axle, of a person the middle."""

    kind: RoadUserType
    axle_m: tuple[float, float]
    heading_rad: float
    velocity_mps: tuple[float, float]  # of the centre

    @staticmethod
    def at_centre(
        kind: RoadUserType,
        centre_m: Float[np.ndarray, " 2"],
        *,
        heading_rad: float,
        velocity_mps: tuple[float, float],
    ) -> "Body":
        """A body that was recorded."""
        axle = centre_m - _axle_to_centre_m(kind) * _unit(heading_rad)
        return Body(kind=kind, axle_m=_pair(axle), heading_rad=heading_rad, velocity_mps=velocity_mps)

    @staticmethod
    def at_bumper(
        kind: RoadUserType, bumper_m: Float[np.ndarray, " 2"], *, heading_rad: float, speed_mps: float
    ) -> "Body":
        """A body that is new."""
        ahead = _unit(heading_rad)
        axle = bumper_m - kind.front_overhang_m * ahead
        return Body(kind=kind, axle_m=_pair(axle), heading_rad=heading_rad, velocity_mps=_pair(speed_mps * ahead))

    @property
    def centre_m(self) -> Float[np.ndarray, " 2"]:
        return np.array(self.axle_m) + _axle_to_centre_m(self.kind) * _unit(self.heading_rad)

    @property
    def bumper_m(self) -> Float[np.ndarray, " 2"]:
        return np.array(self.axle_m) + self.kind.front_overhang_m * _unit(self.heading_rad)

    def pulled(self, bumper_m: Float[np.ndarray, " 2"], *, dt_s: float) -> "Body":
        """The body after its bumper has gone there.

        The velocity is that of the step: SUMO's own speed counts its lanes' lengths, which are not those of their
        shapes (in roundabouts it is off by up to 1.7 m/s).
        """
        if self.kind.track_type == TrackType.PEDESTRIAN:
            axle, heading = self._walked(bumper_m, dt_s=dt_s)
        else:
            axle, heading = self._dragged(bumper_m)
        moved = replace(self, axle_m=_pair(axle), heading_rad=heading)
        return replace(moved, velocity_mps=_pair((moved.centre_m - self.centre_m) / dt_s))

    def _dragged(self, bumper_m: Float[np.ndarray, " 2"]) -> tuple[Float[np.ndarray, " 2"], float]:
        """The front axle on the line from where it was to the bumper, at its distance from it, and the heading."""
        line = bumper_m - np.array(self.axle_m)
        distance = float(np.linalg.norm(line))
        direction = line / distance if distance > 1e-3 else _unit(self.heading_rad)
        axle = bumper_m - self.kind.front_overhang_m * direction
        step = axle - np.array(self.axle_m)
        heading = dragged_heading(
            self.heading_rad,
            length_m=float(np.linalg.norm(step)),
            direction_rad=float(np.arctan2(step[1], step[0])),
            wheelbase_m=self.kind.wheelbase_m,
        )
        return axle, heading

    def _walked(self, goal_m: Float[np.ndarray, " 2"], *, dt_s: float) -> tuple[Float[np.ndarray, " 2"], float]:
        """A person on the way to where SUMO has her, and her heading, which turns to where she walks."""
        step = goal_m - np.array(self.axle_m)
        distance = float(np.linalg.norm(step))
        if distance < STANDING_M:
            return goal_m, self.heading_rad
        turn = float(wrap_angle(np.array(np.arctan2(step[1], step[0]) - self.heading_rad)))
        most = WALKING_TURN_RADPS * dt_s
        walked = step * min(1.0, MAX_WALKING_MPS * dt_s / distance)
        return np.array(self.axle_m) + walked, self.heading_rad + float(np.clip(turn, -most, most))


def _axle_to_centre_m(kind: RoadUserType) -> float:
    """From the front axle (of a person: the middle) forward to the middle of the box."""
    return 0.0 if kind.track_type == TrackType.PEDESTRIAN else kind.front_overhang_m - kind.length_m / 2


def _pair(vector: Float[np.ndarray, " 2"]) -> tuple[float, float]:
    return (float(vector[0]), float(vector[1]))


def _unit(heading_rad: float) -> Float[np.ndarray, " 2"]:
    return np.array([np.cos(heading_rad), np.sin(heading_rad)])
