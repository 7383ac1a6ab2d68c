"""Where an ego that straddles a line must be seen a second time.

SUMO puts a vehicle into one lane, and who drives in the next lane does not see it there, however far it is over the
line. A shadow vehicle takes the place of what the ego covers of that lane.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import shapely
from jaxtyping import Float

from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import arclengths, box_corners, directions, interpolate, project
from waycode.sources.sumo.netconvert import LaneInfo
from waycode.sources.sumo.plain import MOTOR_CLASSES

LEAST_OVERLAP_M = 0.3  # an ego that is less far over a line does not straddle it
# SUMO's drivers see the width of others in steps of the lateral resolution and round it in favour of passing: without
# this they brush past an ego that is 0.1 m in their way.
CLEARANCE_M = 0.4
MAX_ANGLE_RAD = np.pi / 4  # a lane that is crossed at more than this is not straddled


@dataclass(frozen=True, kw_only=True)
class Placement:
    """A box by the middle of its front bumper and its heading, in the world frame."""

    front_m: tuple[float, float]
    heading_rad: float
    length_m: float
    width_m: float

    @property
    def rear_m(self) -> tuple[float, float]:
        x, y = self.front_m
        return (
            x - self.length_m * float(np.cos(self.heading_rad)),
            y - self.length_m * float(np.sin(self.heading_rad)),
        )

    @property
    def corners_m(self) -> Float[np.ndarray, "4 2"]:
        centre = (np.array(self.front_m) + np.array(self.rear_m)) / 2
        length, width = np.array([self.length_m]), np.array([self.width_m])
        return np.asarray(box_corners(centre[None], np.array([self.heading_rad]), length_m=length, width_m=width)[0])


class MotorLanes:
    """The lanes among some that motor vehicles drive on, without those in junctions: there, who is first is seen."""

    def __init__(self, lanes: Iterable[LaneInfo]):
        self._lanes = [lane for lane in lanes if lane.allowed & MOTOR_CLASSES and not lane.is_internal]
        self._shapes = [np.asarray(lane.shape_m, np.float64) for lane in self._lanes]
        self._tree = shapely.STRtree([shapely.LineString(shape) for shape in self._shapes])
        self._widest_m = max((lane.width_m for lane in self._lanes), default=0.0)

    def shadow_of(self, ego: Placement) -> Placement | None:
        """What the ego covers of the lane that it covers most besides its own, a box with that lane's heading."""
        near = self._tree.query(shapely.Polygon(ego.corners_m).buffer(self._widest_m / 2))
        covered = [_covered(ego, self._lanes[index], self._shapes[index]) for index in sorted(near.tolist())]
        others = [part.box for part in covered if part is not None and not part.is_own]
        return max(others, key=lambda box: box.width_m, default=None)


@dataclass(frozen=True, kw_only=True)
class _Covered:
    """What the ego covers of a lane."""

    box: Placement
    is_own: bool  # whether it is the lane that SUMO puts the ego into


def _covered(ego: Placement, lane: LaneInfo, shape_m: Float[np.ndarray, "p 2"]) -> _Covered | None:
    segment = int(project(np.array([ego.front_m]), shape_m)[2][0])
    turned = abs(float(wrap_angle(directions(shape_m)[segment : segment + 1] - ego.heading_rad)[0]))
    is_along = turned < MAX_ANGLE_RAD
    if not is_along and turned < np.pi - MAX_ANGLE_RAD:
        return None
    nose = np.array([ego.front_m if is_along else ego.rear_m])  # seen by who drives in that lane
    along, offset, segment_of = project(nose, shape_m)
    if not 0 < along[0] < arclengths(shape_m)[-1]:
        return None
    heading = float(directions(shape_m)[int(segment_of[0])])
    left = np.array([-np.sin(heading), np.cos(heading)])
    foot = interpolate(shape_m, along)[0]
    across = (ego.corners_m - foot) @ left
    half = lane.width_m / 2
    low, high = max(float(across.min()), -half), min(float(across.max()), half)
    if high - low < LEAST_OVERLAP_M:
        return None
    low, high = max(low - CLEARANCE_M, -half), min(high + CLEARANCE_M, half)
    front = foot + (low + high) / 2 * left
    box = Placement(
        front_m=(float(front[0]), float(front[1])), heading_rad=heading, length_m=ego.length_m, width_m=high - low
    )
    return _Covered(box=box, is_own=is_along and abs(float(offset[0])) <= half)
