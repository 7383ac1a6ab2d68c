"""Bodies in SUMO's world: wheeled motion behind SUMO's front bumpers, and the shadow of an ego that straddles a line.

Recorded scenes are smoothed over past and future (`waycode.sources.sumo.smoothing`), but a live world has no future. So
the bumper stays where SUMO has it and the axles are dragged behind it, which gives smooth headings although SUMO's jump
between the pieces of a lane. A body starts from its recorded pose, so that nothing jumps at the handover.

SUMO assigns a vehicle to one lane, and vehicles in the next lane ignore it however far it is over the line. A shadow
vehicle occupies the part of that lane that the ego covers. All positions are in world coordinates.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import shapely
from jaxtyping import Float

from waycode.scene import TrackType
from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import arclengths, box_corners, directions, forward, interpolate, project
from waycode.sources.sumo.demand import RoadUserType
from waycode.sources.sumo.netconvert import LaneInfo
from waycode.sources.sumo.plain import MOTOR_CLASSES
from waycode.sources.sumo.smoothing import dragged_heading

# SUMO's pedestrians turn within one step and jump where a crossing begins; real ones need about a second to turn.
WALKING_TURN_RADPS = 3.0
MAX_WALKING_MPS = 2.5
_STANDING_M = 0.01  # movement in one step below which a pedestrian keeps the heading
_MIN_OVERLAP_M = 0.3  # an ego that is less far over a line does not straddle it
# SUMO's drivers see widths in steps of the lateral resolution, rounded in favour of passing. Without this clearance
# they graze an ego that is 0.1 m in their way.
SHADOW_CLEARANCE_M = 0.4
_MAX_ANGLE_RAD = np.pi / 4  # a lane at a larger angle to the ego is crossed, not straddled


@dataclass(frozen=True, kw_only=True)
class Body:
    """A road user at one step."""

    kind: RoadUserType
    axle_m: tuple[float, float]  # front axle; the centre of a pedestrian
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
        """A body by the recorded centre of its box."""
        axle = centre_m - _axle_to_centre_m(kind) * forward(np.array(heading_rad))
        return Body(kind=kind, axle_m=_pair(axle), heading_rad=heading_rad, velocity_mps=velocity_mps)

    @staticmethod
    def at_bumper(
        kind: RoadUserType, bumper_m: Float[np.ndarray, " 2"], *, heading_rad: float, speed_mps: float
    ) -> "Body":
        """A body by its front bumper."""
        ahead = forward(np.array(heading_rad))
        axle = bumper_m - kind.front_overhang_m * ahead
        return Body(kind=kind, axle_m=_pair(axle), heading_rad=heading_rad, velocity_mps=_pair(speed_mps * ahead))

    @property
    def centre_m(self) -> Float[np.ndarray, " 2"]:
        return np.array(self.axle_m) + _axle_to_centre_m(self.kind) * forward(np.array(self.heading_rad))

    @property
    def bumper_m(self) -> Float[np.ndarray, " 2"]:
        return np.array(self.axle_m) + self.kind.front_overhang_m * forward(np.array(self.heading_rad))

    def moved_to(self, bumper_m: Float[np.ndarray, " 2"], *, dt_s: float) -> "Body":
        """The body one step of `dt_s` later, with its bumper at a new place.

        The velocity is that of the step. SUMO's own speed refers to its lane lengths, which differ from those of the
        lane shapes: in roundabouts it is off by up to 1.7 m/s.
        """
        if self.kind.track_type == TrackType.PEDESTRIAN:
            axle, heading = self._walked(bumper_m, dt_s=dt_s)
        else:
            axle, heading = self._dragged(bumper_m)
        moved = replace(self, axle_m=_pair(axle), heading_rad=heading)
        return replace(moved, velocity_mps=_pair((moved.centre_m - self.centre_m) / dt_s))

    def _dragged(self, bumper_m: Float[np.ndarray, " 2"]) -> tuple[Float[np.ndarray, " 2"], float]:
        """The new front axle, on the line from the old one to the bumper, and the new heading."""
        line = bumper_m - np.array(self.axle_m)
        distance = float(np.linalg.norm(line))
        direction = line / distance if distance > 1e-3 else forward(np.array(self.heading_rad))
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
        """The new position of a pedestrian, at a limited speed towards SUMO's, and the new heading."""
        step = goal_m - np.array(self.axle_m)
        distance = float(np.linalg.norm(step))
        if distance < _STANDING_M:
            return goal_m, self.heading_rad
        turn = float(wrap_angle(np.array(np.arctan2(step[1], step[0]) - self.heading_rad)))
        max_turn = WALKING_TURN_RADPS * dt_s
        walked = step * min(1.0, MAX_WALKING_MPS * dt_s / distance)
        return np.array(self.axle_m) + walked, self.heading_rad + float(np.clip(turn, -max_turn, max_turn))


def _axle_to_centre_m(kind: RoadUserType) -> float:
    """Distance from the front axle (the centre of a pedestrian) forward to the centre of the box."""
    return 0.0 if kind.track_type == TrackType.PEDESTRIAN else kind.front_overhang_m - kind.length_m / 2


def _pair(vector: Float[np.ndarray, " 2"]) -> tuple[float, float]:
    return (float(vector[0]), float(vector[1]))


@dataclass(frozen=True, kw_only=True)
class Placement:
    """A box by the middle of its front bumper."""

    front_m: tuple[float, float]
    heading_rad: float
    length_m: float
    width_m: float

    @property
    def rear_m(self) -> tuple[float, float]:
        return _pair(np.array(self.front_m) - self.length_m * forward(np.array(self.heading_rad)))

    @property
    def corners_m(self) -> Float[np.ndarray, "4 2"]:
        centre = (np.array(self.front_m) + np.array(self.rear_m)) / 2
        length, width = np.array([self.length_m]), np.array([self.width_m])
        return np.asarray(box_corners(centre[None], np.array([self.heading_rad]), length_m=length, width_m=width)[0])


class MotorLanes:
    """The motor lanes of a network, without those in junctions, where SUMO's vehicles see each other anyway."""

    def __init__(self, lanes: Iterable[LaneInfo]):
        self._lanes = [lane for lane in lanes if lane.allowed & MOTOR_CLASSES and not lane.is_internal]
        self._shapes = [np.asarray(lane.shape_m, np.float64) for lane in self._lanes]
        self._tree = shapely.STRtree([shapely.LineString(shape) for shape in self._shapes])
        self._widest_m = max((lane.width_m for lane in self._lanes), default=0.0)

    def shadow_of(self, ego: Placement) -> Placement | None:
        """The part of another lane that the ego covers, as a box with the lane's heading; None if it covers none.

        If there are several such lanes, the one that is covered most.
        """
        near = self._tree.query(shapely.Polygon(ego.corners_m).buffer(self._widest_m / 2))
        covered = [_covered_part(ego, self._lanes[index], self._shapes[index]) for index in sorted(near.tolist())]
        return max((box for box in covered if box is not None), key=lambda box: box.width_m, default=None)


def _covered_part(ego: Placement, lane: LaneInfo, shape_m: Float[np.ndarray, "p 2"]) -> Placement | None:
    """The part of a lane that the ego covers; None for its own lane (that of SUMO) and for too small an overlap."""
    headings = directions(shape_m)
    segment = int(project(np.array([ego.front_m]), shape_m)[2][0])
    angle = abs(float(wrap_angle(headings[segment : segment + 1] - ego.heading_rad)[0]))
    is_along = angle < _MAX_ANGLE_RAD
    if not is_along and angle < np.pi - _MAX_ANGLE_RAD:
        return None
    nose = np.array([ego.front_m if is_along else ego.rear_m])  # the front, in the direction of the lane
    along, offset, segment_of = project(nose, shape_m)
    half = lane.width_m / 2
    is_own = is_along and abs(float(offset[0])) <= half
    if is_own or not 0 < along[0] < arclengths(shape_m)[-1]:
        return None
    heading = float(headings[int(segment_of[0])])
    left = np.array([-np.sin(heading), np.cos(heading)])
    foot = interpolate(shape_m, along)[0]
    across = (ego.corners_m - foot) @ left
    low, high = max(float(across.min()), -half), min(float(across.max()), half)
    if high - low < _MIN_OVERLAP_M:
        return None
    low, high = max(low - SHADOW_CLEARANCE_M, -half), min(high + SHADOW_CLEARANCE_M, half)
    front = foot + (low + high) / 2 * left
    return Placement(front_m=_pair(front), heading_rad=heading, length_m=ego.length_m, width_m=high - low)
