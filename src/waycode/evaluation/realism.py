"""Realism of a motion: does it stay on the road, avoid recorded road users and respect the limits of vehicles?"""

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


@dataclass(frozen=True, kw_only=True)
class VehicleLimits:
    """Limits of road cars; a motion beyond any of them is kinematically infeasible."""

    curvature_1pm: float = 0.3  # turning circle of 6.7 m diameter, tighter than that of any car
    curvature_speed_mps: float = 2.0  # curvature is not measured below this speed, where it is mostly noise
    longitudinal_mps2: float = 6.0  # the scene generator rejects harder braking
    lateral_mps2: float = 8.0  # about the grip of dry asphalt


@dataclass(frozen=True, kw_only=True)
class Realism:
    """Faults of a motion; all false is good."""

    edge_contact: bool  # the bounding box touches a road edge
    infeasible: bool  # beyond `VehicleLimits`
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

        Points beyond the convex hull of all areas do not count, since the map ends there; nor do any on a map without
        areas.
        """
        if self._areas is None:
            return False
        points = shapely.points(points_m)
        known = np.flatnonzero(shapely.intersects(self._known, points))
        inside = self._areas.query(points, predicate="intersects")[0]
        return len(np.setdiff1d(known, inside)) > 0


def realism_of(
    motion: MeasuredMotion, scene: Scene, *, agent: int, road: RoadShape, limits: VehicleLimits | None = None
) -> Realism:
    """Checks the steps after the current one.

    Args:
        motion: a plan or the recorded motion of the agent.
        scene: gives the size of the agent and the recorded road users, who do not react.
        agent: index of the track.
        road: the road of the scene.
        limits: None: the defaults.
    """
    tracks = scene.tracks
    centres, headings = motion.position_m[1:], motion.heading_rad[1:]
    size = {
        "length_m": np.full(len(centres), float(tracks.length_m[agent])),
        "width_m": np.full(len(centres), float(tracks.width_m[agent])),
    }
    corners = box_corners(centres, headings, **size)  # [T, 4, 2]
    return Realism(
        edge_contact=road.touched_by(shapely.polygons(corners)),
        infeasible=is_infeasible(motion, limits),
        off_road=road.leaves(centres),
        collision=hits_recorded(corners, scene, agent),
    )


def is_infeasible(motion: MeasuredMotion, limits: VehicleLimits | None = None) -> bool:
    """Whether the motion exceeds a limit. Derivatives run on from the observed past: a jump at the start counts."""
    limits = limits or VehicleLimits()
    curvature, longitudinal, lateral = _curvature_and_accelerations(motion, slowest_mps=limits.curvature_speed_mps)
    too_much = (
        (np.abs(curvature) > limits.curvature_1pm)
        | (np.abs(longitudinal) > limits.longitudinal_mps2)
        | (np.abs(lateral) > limits.lateral_mps2)
    )
    return bool(too_much.any())


def _curvature_and_accelerations(
    motion: MeasuredMotion, *, slowest_mps: float
) -> tuple[Float[np.ndarray, " F"], Float[np.ndarray, " F"], Float[np.ndarray, " F"]]:
    """Curvature in 1/m (0 below `slowest_mps`), longitudinal and lateral acceleration in m/s^2."""
    joined = np.concatenate([motion.past_m, motion.position_m])
    smooth = {"window_length": _SMOOTHING_STEPS, "polyorder": _SMOOTHING_ORDER, "delta": motion.dt_s, "axis": 0}
    velocity = savgol_filter(joined, deriv=1, **smooth)[len(motion.past_m) :]
    acceleration = savgol_filter(joined, deriv=2, **smooth)[len(motion.past_m) :]
    speed = np.linalg.norm(velocity, axis=1)
    cross = velocity[:, 0] * acceleration[:, 1] - velocity[:, 1] * acceleration[:, 0]
    safe = np.maximum(speed, slowest_mps)
    curvature = np.where(speed > slowest_mps, cross / safe**3, 0.0)
    longitudinal = np.where(speed > slowest_mps, (velocity * acceleration).sum(axis=1) / safe, 0.0)
    return curvature, longitudinal, cross / safe
