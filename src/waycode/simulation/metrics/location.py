"""The ego's lanes, junctions and distance off the drivable area, by nuPlan's rules. Axes: T steps, L lanes, C corners.

Corners are in the order front left, front right, rear right, rear left. A *row* is a lane's index in `LanePolygons`.
nuPlan follows lanes through time: a lane, or an overlapping lane of a junction, counts for a point as long as it
contains the point, and others are only looked for afterwards. The same rules hold for the centre and for the corners.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import shapely
from jaxtyping import Bool, Float

from waycode.driving.road_surface import DrivableArea, LanePolygons
from waycode.scene import MapFeatures
from waycode.scene.frames import wrap_angle
from waycode.scene.lane_graph import ON_LANE
from waycode.simulation.history import EgoHistory

_KEEP_CONNECTOR_M = 5.0  # nuPlan: an ego within this distance of its lane through a junction is still on it
_CORNER_ORDER = (0, 3, 2, 1)  # nuPlan's: front left, rear left, rear right, front right

LaneRows = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class EgoLocation:
    """Where the ego is on the map over T steps."""

    rows: tuple[LaneRows, ...]  # lanes under the ego's centre per step; several only in a junction, in the map's order
    in_one_lane: Bool[np.ndarray, " T"]  # all corners in one lane or in lanes that continue each other
    in_junction: Bool[np.ndarray, " T"]  # the rear axle is in a junction
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
        in_one_lane=_in_one_lane(lanes, by_corner),
        in_junction=lanes.inside_junctions(ego.rear_axle_m),
        outside_m=None if area is None else area.outside_m(corners.reshape(-1, 2)).reshape(corners.shape[:2]),
    )


def lanes_driven(ego: EgoHistory, lanes: LanePolygons) -> tuple[LaneRows, ...]:
    """Rows of the lanes under the ego's centre per step.

    The ego stays on its lane while that contains it, then moves to a successor, else to the lane that contains it.
    Lanes overlap in junctions: all that contain the ego are kept until the lane after it shows which was taken.
    """
    inside, in_junction = lanes.inside(ego.centre_m), lanes.inside_junctions(ego.centre_m)
    found: list[LaneRows] = []
    for step in range(len(ego)):
        before = found[-1] if found else ()
        rows = _continued(lanes, before, inside[:, step])
        if not rows:
            rows = _lanes_at(lanes, inside[:, step])
            if len(rows) > 1 and not lanes.in_junction[rows[0]]:
                rows = (_best_lane(lanes, rows, ego.centre_m[step], float(ego.heading_rad[step])),)
            # A path that leaves its lane through a junction may cross lanes that it does not take. nuPlan does not look
            # back from the second step.
            crossing = bool(lanes.in_junction[rows[0]]) if rows else bool(in_junction[step])
            if step > 1 and before and lanes.in_junction[before[0]] and crossing:
                point = shapely.points(ego.centre_m[step])
                rows = tuple(r for r in before if lanes.polygons[r].distance(point) < _KEEP_CONNECTOR_M) or rows
        found.append(rows)
    return _resolve_junctions(lanes, found)


def _continued(lanes: LanePolygons, before: Sequence[int], holds: Bool[np.ndarray, " L"]) -> LaneRows:
    """Those of the lanes before that still contain a point; if none does, and it was a single one, its successors."""
    kept = tuple(row for row in before if holds[row])
    if not kept and len(before) == 1:
        kept = tuple(int(row) for row in np.flatnonzero(lanes.continues[before[0]] & holds))
    return kept


def _lanes_at(lanes: LanePolygons, holds: Bool[np.ndarray, " L"]) -> LaneRows:
    """The lanes that contain a point; lanes of junctions only where no other does. nuPlan's lanes do not overlap."""
    streets = np.flatnonzero(holds & ~lanes.in_junction)
    return tuple(int(row) for row in (streets if len(streets) else np.flatnonzero(holds)))


def _best_lane(lanes: LanePolygons, rows: LaneRows, point_m: Float[np.ndarray, "2"], heading_rad: float) -> int:
    """The best aligned and nearest of several lanes, on maps whose lanes overlap outside of junctions."""
    distance_m, lane_rad = lanes.lanes.graph.distances(point_m)
    misaligned = np.abs(wrap_angle(lane_rad - heading_rad)) > ON_LANE.angle_rad
    return min(rows, key=lambda row: (bool(misaligned[lanes.lane[row]]), float(distance_m[lanes.lane[row]])))


def _resolve_junctions(lanes: LanePolygons, found: list[LaneRows]) -> tuple[LaneRows, ...]:
    """Backwards in time, drops rows that the ego is not on afterwards and that do not lead to its next lane.

    As in nuPlan, several lanes of a junction become none if the ego is on no lane afterwards.
    """
    result = list(found)
    for step in range(len(found) - 2, -1, -1):
        here, after = result[step], result[step + 1]
        if len(here) <= 1:
            continue
        if len(here) > len(after) and set(after) <= set(here):
            result[step] = after
        elif after and not lanes.in_junction[after[0]]:
            result[step] = tuple(row for row in here if lanes.continues[row, after[0]]) or here
    return tuple(result)


def _in_one_lane(lanes: LanePolygons, inside: Bool[np.ndarray, "L T C"]) -> Bool[np.ndarray, " T"]:
    """Whether the corners share a lane, or the front and rear corners are on lanes that continue each other."""
    kept = np.zeros(inside.shape[1], np.bool_)
    candidates: list[int] = []  # lanes of the corners at the step before
    for step in range(inside.shape[1]):
        corners: dict[int, LaneRows] = {}
        for corner in _CORNER_ORDER:
            holds = inside[:, step, corner]
            corners[corner] = _continued(lanes, candidates, holds)
            if not corners[corner]:
                corners[corner] = _lanes_at(lanes, holds)
                if step == 1:  # in nuPlan, corners of this step already count for its other corners
                    candidates += [row for row in corners[corner] if row not in candidates]
        candidates = list(dict.fromkeys(row for corner in _CORNER_ORDER for row in corners[corner]))
        kept[step] = _share_lane(lanes, corners)
    return kept


def _share_lane(lanes: LanePolygons, corners: dict[int, LaneRows]) -> bool:
    """Whether corners are in one lane, or in lanes that continue each other."""
    front_left, front_right, rear_right, rear_left = (set(corners[corner]) for corner in range(4))
    if front_left & front_right & rear_right & rear_left:
        return True

    def with_next(rows: set[int]) -> set[int]:
        return rows.union(*(np.flatnonzero(lanes.continues[row]).tolist() for row in rows))

    def with_previous(rows: set[int]) -> set[int]:
        return rows.union(*(np.flatnonzero(lanes.continues[:, row]).tolist() for row in rows))

    rear = (rear_left & with_next(rear_right)) | (rear_right & with_next(rear_left))
    across = with_previous(front_left) & with_next(rear_right) & with_previous(front_right) & with_next(rear_left)
    return bool(rear and across)
