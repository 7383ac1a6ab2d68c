"""Realism of a motion: it stays on the road, avoids recorded road users and respects the limits of road cars."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import shapely
from jaxtyping import Float
from scipy.signal import savgol_filter

from waycode.evaluation.motion import MeasuredMotion
from waycode.scene import Scene
from waycode.scene.conflicts import hits_recorded
from waycode.scene.geometry import box_corners

_SMOOTHING_STEPS, _SMOOTHING_ORDER = 9, 3  # Savitzky-Golay, for derivatives of positions that are rounded to 1 mm
# Limits of road cars; a motion beyond any of them is kinematically infeasible.
_MAX_CURVATURE_1PM = 0.3  # turning circle of 6.7 m diameter, tighter than that of any car
_MIN_CURVATURE_SPEED_MPS = 2.0  # curvature is not measured below this speed, where it is mostly noise
_MAX_LONGITUDINAL_MPS2 = 6.0  # the scene generator rejects harder braking
_MAX_LATERAL_MPS2 = 8.0  # about the grip of dry asphalt


@dataclass(frozen=True, kw_only=True)
class Realism:
    """Faults of a motion; a realistic motion has none."""

    edge_contact: bool  # the bounding box touches a road edge
    infeasible: bool  # beyond the limits of road cars
    off_road: bool  # the centre leaves the drivable area
    collision: bool  # the bounding box overlaps that of a recorded road user at the same step


REALISM_MEASURES = tuple(measure.name for measure in fields(Realism))


class RoadShape:
    """Road edges and drivable area of a scene; build it once per scene."""

    def __init__(self, scene: Scene):
        edges = [shapely.linestrings(line) for line in scene.map.road_edges.as_list() if len(line) > 1]
        areas = [shapely.polygons(ring) for ring in scene.map.drivable_areas.as_list() if len(ring) > 2]
        self._edges = shapely.STRtree(edges) if edges else None
        self._areas = shapely.STRtree(shapely.make_valid(np.array(areas, object))) if areas else None
        self._known = shapely.convex_hull(shapely.geometrycollections(areas))

    def touched_by(self, boxes: Any) -> bool:
        """Whether any of the shapely polygons intersects a road edge."""
        return self._edges is not None and len(self._edges.query(boxes, predicate="intersects")[0]) > 0

    def leaves(self, points_m: Float[np.ndarray, "n 2"]) -> bool:
        """Whether any of the points lies outside the drivable area.

        Points beyond the convex hull of all areas do not count, since the map ends there. On a map without areas, no
        point counts.
        """
        if self._areas is None:
            return False
        points = shapely.points(points_m)
        known = np.flatnonzero(shapely.intersects(self._known, points))
        inside = self._areas.query(points, predicate="intersects")[0]
        return len(np.setdiff1d(known, inside)) > 0


def realism_of(motion: MeasuredMotion, scene: Scene, *, agent: int, road: RoadShape) -> Realism:
    """Checks the steps of a motion after the current one.

    Args:
        motion: a plan or the recorded motion of the agent.
        scene: with the size of the agent and the recorded road users, which do not react.
        agent: index of the track.
        road: road edges and drivable area of the scene.
    """
    corners = body_corners_m(motion, scene, agent)
    return Realism(
        edge_contact=road.touched_by(shapely.polygons(corners)),
        infeasible=is_infeasible(motion),
        off_road=road.leaves(motion.position_m[1:]),
        collision=hits_recorded(corners, scene, agent),
    )


def body_corners_m(motion: MeasuredMotion, scene: Scene, agent: int) -> Float[np.ndarray, "T 4 2"]:
    """Corners of the agent's bounding box at the steps after the current one, headed in the direction of motion."""
    length_m, width_m = (
        np.full(len(motion.position_m) - 1, float(size[agent]))
        for size in (scene.tracks.length_m, scene.tracks.width_m)
    )
    return box_corners(motion.position_m[1:], motion.heading_rad[1:], length_m=length_m, width_m=width_m)


def is_infeasible(motion: MeasuredMotion) -> bool:
    """Whether the motion exceeds a limit of road cars.

    Derivatives include the observed past, so that a jump at the start counts.
    """
    joined = np.concatenate([motion.past_m, motion.position_m])
    smooth = {"window_length": _SMOOTHING_STEPS, "polyorder": _SMOOTHING_ORDER, "delta": motion.dt_s, "axis": 0}
    velocity = savgol_filter(joined, deriv=1, **smooth)[len(motion.past_m) :]
    acceleration = savgol_filter(joined, deriv=2, **smooth)[len(motion.past_m) :]
    speed = np.linalg.norm(velocity, axis=1)
    moves, safe = speed > _MIN_CURVATURE_SPEED_MPS, np.maximum(speed, _MIN_CURVATURE_SPEED_MPS)
    cross = velocity[:, 0] * acceleration[:, 1] - velocity[:, 1] * acceleration[:, 0]
    curvature = np.where(moves, cross / safe**3, 0.0)
    longitudinal = np.where(moves, (velocity * acceleration).sum(axis=1) / safe, 0.0)
    lateral = cross / safe
    too_much = (
        (np.abs(curvature) > _MAX_CURVATURE_1PM)
        | (np.abs(longitudinal) > _MAX_LONGITUDINAL_MPS2)
        | (np.abs(lateral) > _MAX_LATERAL_MPS2)
    )
    return bool(too_much.any())
