"""Where on the map the ego is at every step: its lanes, junctions, and how far its corners leave the drivable area.

Axes: T steps, L lanes, C corners (front left, front right, rear right, rear left).
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
from waycode.simulation.history import EgoStates

KEPT_JUNCTION_LANE_M = 5.0  # nuPlan: within this distance the ego still belongs to the way through the junction it took


@dataclass(frozen=True, kw_only=True)
class Whereabouts:
    """Where the ego is over T steps."""

    driven: tuple[tuple[int, ...], ...]  # rows of the index that the centre is on; the first is the most likely one
    in_one_lane: Bool[np.ndarray, " T"]  # all corners in one lane or in lanes that continue each other
    in_junction: Bool[np.ndarray, " T"]
    outside_m: Float[np.ndarray, "T C"] | None  # how far each corner is off the drivable area; None where none is known


def locate(ego: EgoStates, index: LanePolygons, *, map_features: MapFeatures) -> Whereabouts:
    """Where the ego is on the map at every step."""
    corners = ego.corners_m
    by_corner = index.inside(corners.reshape(-1, 2)).reshape(len(index), len(ego), 4)
    at_axle = index.inside(ego.rear_axle_m)
    area = DrivableArea.of(map_features, index)
    return Whereabouts(
        driven=driven_lanes(index, ego),
        in_one_lane=_in_one_lane(index, by_corner, length_m=ego.vehicle.length_m),
        in_junction=at_axle[index.in_junction].any(axis=0),
        outside_m=None if area is None else area.outside_m(corners.reshape(-1, 2)).reshape(corners.shape[:2]),
    )


def driven_lanes(index: LanePolygons, ego: EgoStates) -> tuple[tuple[int, ...], ...]:
    """The lanes that the ego's centre drives on, per step (nuPlan: it stays on what it was on, or goes on from there).

    Where ways through a junction overlap there are several, until the one is known that the ego ends up on.
    """
    inside = index.inside(ego.centre_m)
    found: list[tuple[int, ...]] = []
    current: tuple[int, ...] = ()
    for step in range(len(ego)):
        held = np.flatnonzero(inside[:, step])
        kept = tuple(row for row in current if inside[row, step])
        if not kept and len(current) == 1:
            kept = tuple(int(row) for row in held if index.continues[current[0], row])
        if not kept:
            kept = _lanes_anew(index, held, ego, step=step)
            kept = _unless_still_near(index, kept, current, point_m=ego.centre_m[step])
        current = kept
        found.append(current)
    return _without_ways_not_taken(index, found)


def _lanes_anew(index: LanePolygons, held: np.ndarray, ego: EgoStates, *, step: int) -> tuple[int, ...]:
    """Of the lanes that hold the ego: the lane it is most along, or outside of lanes all ways through the junction."""
    distance, lane_rad = index.lanes.graph.distances(ego.centre_m[step])
    misaligned = np.abs(wrap_angle(lane_rad - ego.heading_rad[step])) > ON_LANE.angle_rad

    def misfit(row: int) -> tuple[bool, float]:
        return bool(misaligned[index.lane[row]]), float(distance[index.lane[row]])

    ordered = sorted((int(row) for row in held), key=misfit)
    lanes = [row for row in ordered if not index.in_junction[row]]
    return (lanes[0],) if lanes else tuple(ordered)


def _unless_still_near(
    index: LanePolygons, found: tuple[int, ...], before: tuple[int, ...], *, point_m: np.ndarray
) -> tuple[int, ...]:
    """Within a junction the ego keeps to the way it took, though it drives a little beside it."""
    on_lane = bool(found) and not index.in_junction[found[0]]
    if on_lane or not before or not index.in_junction[before[0]]:
        return found
    point = shapely.points(point_m)
    near = tuple(row for row in before if index.polygons[row].distance(point) < KEPT_JUNCTION_LANE_M)
    return near or found


def _without_ways_not_taken(index: LanePolygons, found: list[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """From the end backwards: of several ways, those that the ego is on afterwards or that lead to its next lane."""
    result = list(found)
    for step in range(len(found) - 2, -1, -1):
        here, after = result[step], result[step + 1]
        if len(here) <= 1 or not after:
            continue
        if len(here) > len(after) and set(after) <= set(here):
            result[step] = after
        elif not index.in_junction[after[0]]:
            leading = tuple(row for row in here if index.continues[row, after[0]])
            result[step] = leading or here
    return tuple(result)


def _in_one_lane(index: LanePolygons, inside: Bool[np.ndarray, "L T C"], *, length_m: float) -> Bool[np.ndarray, " T"]:
    """Whether the corners share a lane, or front and rear ones are on lanes that continue each other."""
    if len(index) == 0:
        return np.zeros(inside.shape[1], np.bool_)
    common = inside.all(axis=2).any(axis=0)
    short = np.array([line_length(line) < length_m for line in index.centrelines])
    next_lane = index.continues.astype(np.int64)
    onwards = next_lane + next_lane @ (short[:, None] * next_lane)  # a car may stand over a lane shorter than itself
    front_left, front_right, rear_right, rear_left = np.moveaxis(inside, 2, 0)

    def with_next(rows: np.ndarray) -> np.ndarray:
        return np.asarray(rows | (onwards.T @ rows > 0))

    def with_previous(rows: np.ndarray) -> np.ndarray:
        return np.asarray(rows | (onwards @ rows > 0))

    rear = (rear_left & with_next(rear_right)) | (rear_right & with_next(rear_left))
    across = with_previous(front_left) & with_next(rear_right) & with_previous(front_right) & with_next(rear_left)
    return np.asarray(common | (rear.any(axis=0) & across.any(axis=0)))


def line_length(points_m: Float[np.ndarray, "p 2"]) -> float:
    return float(arclengths(points_m)[-1])
