"""The ego's lanes, junctions and distance off the drivable area. Axes: T steps, L lanes, C corners.

Corners are in the order front left, front right, rear right, rear left. A *row* is a lane's index in `LanePolygons`.
"""

from dataclasses import dataclass

import numpy as np
import shapely
from jaxtyping import Bool, Float

from waycode.driving.road_surface import DrivableArea, LanePolygons
from waycode.scene import MapFeatures
from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import arclengths
from waycode.scene.lane_graph import ON_LANE
from waycode.simulation.history import EgoHistory

_KEEP_CONNECTOR_M = 5.0  # nuPlan: an ego within this distance of its lane through a junction is still on it


@dataclass(frozen=True, kw_only=True)
class EgoLocation:
    """Where the ego is on the map over T steps."""

    rows: tuple[tuple[int, ...], ...]  # lanes under the ego's centre per step, the most likely one first
    in_one_lane: Bool[np.ndarray, " T"]  # all corners in one lane or in lanes that continue each other
    in_junction: Bool[np.ndarray, " T"]  # the rear axle is on a lane of a junction
    outside_m: Float[np.ndarray, "T C"] | None  # distance off the drivable area; None if the map has none


def locate_ego(ego: EgoHistory, lanes: LanePolygons, *, map_features: MapFeatures) -> EgoLocation:
    """Locates the ego at every step.

    Args:
        ego: the ego over T steps.
        lanes: the lanes around it.
        map_features: the map that the lanes are from.
    """
    corners = ego.corners_m
    by_corner = lanes.inside(corners.reshape(-1, 2)).reshape(len(lanes), len(ego), 4)
    area = DrivableArea.of(map_features, lanes)
    return EgoLocation(
        rows=lanes_driven(ego, lanes),
        in_one_lane=_in_one_lane(lanes, by_corner, length_m=ego.vehicle.length_m),
        in_junction=lanes.inside(ego.rear_axle_m)[lanes.in_junction].any(axis=0),
        outside_m=None if area is None else area.outside_m(corners.reshape(-1, 2)).reshape(corners.shape[:2]),
    )


def lanes_driven(ego: EgoHistory, lanes: LanePolygons) -> tuple[tuple[int, ...], ...]:
    """Rows of the lanes under the ego's centre per step, by nuPlan's rules.

    The ego stays on its lane while that contains it, then moves to a successor, else to the lane that fits best. Lanes
    overlap in junctions: all that contain the ego are kept until the lane after the junction shows which was taken.
    """
    inside = lanes.inside(ego.centre_m)
    found: list[tuple[int, ...]] = []
    current: tuple[int, ...] = ()
    for step in range(len(ego)):
        holding = np.flatnonzero(inside[:, step])
        kept = tuple(row for row in current if inside[row, step])
        if not kept and len(current) == 1:
            kept = tuple(int(row) for row in holding if lanes.continues[current[0], row])
        if not kept:
            kept = _best_lanes(lanes, holding, point_m=ego.centre_m[step], heading_rad=float(ego.heading_rad[step]))
            on_street = bool(kept) and not lanes.in_junction[kept[0]]
            if not on_street and current and lanes.in_junction[current[0]]:
                point = shapely.points(ego.centre_m[step])
                near = (row for row in current if lanes.polygons[row].distance(point) < _KEEP_CONNECTOR_M)
                kept = tuple(near) or kept
        current = kept
        found.append(current)
    return _resolve_junctions(lanes, found)


def _best_lanes(
    lanes: LanePolygons, holding: np.ndarray, *, point_m: Float[np.ndarray, "2"], heading_rad: float
) -> tuple[int, ...]:
    """The best aligned and nearest of the rows that contain the ego; all of them if all are junction lanes."""
    distance_m, lane_rad = lanes.lanes.graph.distances(point_m)
    misaligned = np.abs(wrap_angle(lane_rad - heading_rad)) > ON_LANE.angle_rad

    def misfit(row: int) -> tuple[bool, float]:
        return bool(misaligned[lanes.lane[row]]), float(distance_m[lanes.lane[row]])

    ordered = sorted((int(row) for row in holding), key=misfit)
    streets = [row for row in ordered if not lanes.in_junction[row]]
    return (streets[0],) if streets else tuple(ordered)


def _resolve_junctions(lanes: LanePolygons, found: list[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """Backwards in time, drops rows that the ego is not on afterwards and that do not lead to its next lane."""
    result = list(found)
    for step in range(len(found) - 2, -1, -1):
        here, after = result[step], result[step + 1]
        if len(here) <= 1 or not after:
            continue
        if len(here) > len(after) and set(after) <= set(here):
            result[step] = after
        elif not lanes.in_junction[after[0]]:
            result[step] = tuple(row for row in here if lanes.continues[row, after[0]]) or here
    return tuple(result)


def _in_one_lane(lanes: LanePolygons, inside: Bool[np.ndarray, "L T C"], *, length_m: float) -> Bool[np.ndarray, " T"]:
    """Whether the corners share a lane, or the front and rear corners are on lanes that continue each other."""
    if len(lanes) == 0:
        return np.zeros(inside.shape[1], np.bool_)
    common = inside.all(axis=2).any(axis=0)
    # The ego may span three lanes if the middle one is shorter than the ego.
    short = np.array([arclengths(line)[-1] < length_m for line in lanes.centrelines])
    successor = lanes.continues.astype(np.int64)
    onwards = successor + successor @ (short[:, None] * successor)
    front_left, front_right, rear_right, rear_left = np.moveaxis(inside, 2, 0)

    def with_next(rows: np.ndarray) -> np.ndarray:
        return np.asarray(rows | (onwards.T @ rows > 0))

    def with_previous(rows: np.ndarray) -> np.ndarray:
        return np.asarray(rows | (onwards @ rows > 0))

    rear = (rear_left & with_next(rear_right)) | (rear_right & with_next(rear_left))
    across = with_previous(front_left) & with_next(rear_right) & with_previous(front_right) & with_next(rear_left)
    return np.asarray(common | (rear.any(axis=0) & across.any(axis=0)))
