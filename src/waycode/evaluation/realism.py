"""Whether a way could have been driven by a car in this scene: on the road, by a body that obeys the laws of motion."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import shapely
from jaxtyping import Float
from scipy.signal import savgol_filter

from waycode.evaluation.driven import Driven
from waycode.scene import Scene
from waycode.scene.conflicts import hits_recorded
from waycode.scene.geometry import box_corners

SMOOTHING_STEPS, SMOOTHING_ORDER = 9, 3  # Savitzky-Golay, for derivatives of positions that are rounded to 1 mm


@dataclass(frozen=True, kw_only=True)
class VehicleLimits:
    """What no road car does; a way that goes beyond any of these is kinematically infeasible.

    The curvature is that of a turning circle of 6.7 m across, tighter than any car's; 8 m/s^2 sideways is about what
    dry asphalt holds; the generator of our scenes turns down braking beyond 6 m/s^2.
    """

    curvature_1pm: float = 0.3
    curvature_speed_mps: float = 2.0  # slower than this, curvature is not measured: it is mostly noise
    longitudinal_mps2: float = 6.0
    lateral_mps2: float = 8.0


@dataclass(frozen=True, kw_only=True)
class Realism:
    """What is wrong with a way; all false is good."""

    edge_contact: bool  # the body touches a road edge
    infeasible: bool
    off_road: bool  # the centre leaves the drivable area
    collision: bool  # the body overlaps with a recorded road user


MEASURES = tuple(measure.name for measure in fields(Realism))


class RoadShape:
    """The road edges and the drivable area of a scene, made once per scene."""

    def __init__(self, scene: Scene):
        edges = [shapely.linestrings(line) for line in scene.map.road_edges.as_list() if len(line) > 1]
        areas = [shapely.polygons(ring) for ring in scene.map.drivable_areas.as_list() if len(ring) > 2]
        self._edges = shapely.STRtree(edges) if edges else None
        self._areas = shapely.STRtree(shapely.make_valid(np.array(areas, object))) if areas else None
        self._known = shapely.convex_hull(shapely.geometrycollections(areas))

    def touched_by(self, boxes: Any) -> bool:
        """Whether any of these shapely polygons meets a road edge."""
        return self._edges is not None and len(self._edges.query(boxes, predicate="intersects")[0]) > 0

    def leaves(self, points_m: Float[np.ndarray, "n 2"]) -> bool:
        """Whether any of the points lies outside the drivable area.

        Beyond the convex hull of the areas the map has ended, and nothing is known; nor on a map without areas.
        """
        if self._areas is None:
            return False
        points = shapely.points(points_m)
        known = np.flatnonzero(shapely.intersects(self._known, points))
        inside = self._areas.query(points, predicate="intersects")[0]
        return len(np.setdiff1d(known, inside)) > 0


def realism_of(
    driven: Driven, scene: Scene, *, agent: int, road: RoadShape, limits: VehicleLimits | None = None
) -> Realism:
    """Judges what comes after the current step."""
    tracks = scene.tracks
    centres, headings = driven.position_m[1:], driven.heading_rad[1:]
    size = {
        "length_m": np.full(len(centres), float(tracks.length_m[agent])),
        "width_m": np.full(len(centres), float(tracks.width_m[agent])),
    }
    corners = box_corners(centres, headings, **size)  # [T, 4, 2]
    return Realism(
        edge_contact=road.touched_by(shapely.polygons(corners)),
        infeasible=is_infeasible(driven, limits),
        off_road=road.leaves(centres),
        collision=hits_recorded(corners, scene, agent),
    )


def is_infeasible(driven: Driven, limits: VehicleLimits | None = None) -> bool:
    """Whether any limit is broken after the current step; how the way joins the observed past counts."""
    limits = limits or VehicleLimits()
    curvature, longitudinal, lateral = motion_of(driven, slowest_mps=limits.curvature_speed_mps)
    too_much = (
        (np.abs(curvature) > limits.curvature_1pm)
        | (np.abs(longitudinal) > limits.longitudinal_mps2)
        | (np.abs(lateral) > limits.lateral_mps2)
    )
    return bool(too_much.any())


def motion_of(
    driven: Driven, *, slowest_mps: float
) -> tuple[Float[np.ndarray, " F"], Float[np.ndarray, " F"], Float[np.ndarray, " F"]]:
    """Curvature (0 where slower), longitudinal and lateral acceleration, at the current step and those after it."""
    joined = np.concatenate([driven.past_m, driven.position_m])
    smooth = {"window_length": SMOOTHING_STEPS, "polyorder": SMOOTHING_ORDER, "delta": driven.dt_s, "axis": 0}
    velocity = savgol_filter(joined, deriv=1, **smooth)[len(driven.past_m) :]
    acceleration = savgol_filter(joined, deriv=2, **smooth)[len(driven.past_m) :]
    speed = np.linalg.norm(velocity, axis=1)
    cross = velocity[:, 0] * acceleration[:, 1] - velocity[:, 1] * acceleration[:, 0]
    safe = np.maximum(speed, slowest_mps)
    curvature = np.where(speed > slowest_mps, cross / safe**3, 0.0)
    longitudinal = np.where(speed > slowest_mps, (velocity * acceleration).sum(axis=1) / safe, 0.0)
    return curvature, longitudinal, cross / safe
