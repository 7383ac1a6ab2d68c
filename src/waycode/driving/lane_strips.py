"""Lanes as surfaces: a lane is the strip of its width around its centreline; bicycle lanes are not for cars.

Axes: L strips, Q points.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import shapely
from jaxtyping import Bool, Float, Float64
from shapely import STRtree

from waycode.scene import Lanes, LaneType, MapFeatures
from waycode.scene.geometry import arclengths

UNKNOWN_LANE_WIDTH_M = 3.5
LANE_SLACK_M = 0.1  # lanes are drawn with cracks between them
NEARBY_M = 60.0  # nothing further from a car's path matters


@dataclass(frozen=True, kw_only=True)
class LaneStrips:
    """Lanes as polygons, and how they continue each other; row i of L is lane `lane[i]` of the map."""

    lanes: Lanes
    lane: tuple[int, ...]
    polygons: tuple[Any, ...]
    centrelines: tuple[Float64[np.ndarray, "_ 2"], ...]
    in_junction: Bool[np.ndarray, " L"]
    continues: Bool[np.ndarray, "L L"]  # [i, j]: lane j continues lane i

    def __len__(self) -> int:
        return len(self.lane)

    @cached_property
    def _tree(self) -> STRtree:
        return STRtree(self.polygons)

    def inside(self, points_m: Float[np.ndarray, "Q 2"]) -> Bool[np.ndarray, "L Q"]:
        """Which lanes hold which points."""
        held = np.zeros((len(self), len(points_m)), np.bool_)
        if len(self):
            point, row = self._tree.query(shapely.points(points_m), predicate="intersects")
            held[row, point] = True
        return held


def lane_strips(map_features: MapFeatures, around_m: Float[np.ndarray, "Q 2"] | None = None) -> LaneStrips:
    """The lanes that a car may use, on the whole map or within `NEARBY_M` of some points."""
    lanes = map_features.lanes
    chosen = []
    for row, line in enumerate(lanes.centrelines.as_list()):
        if lanes.types[row] != LaneType.BIKE and arclengths(line)[-1] > 0 and _is_near(line, around_m):
            chosen.append(row)
    width = np.where(lanes.width_known, lanes.width_m, UNKNOWN_LANE_WIDTH_M)
    centrelines = tuple(lanes.centrelines[row].astype(np.float64) for row in chosen)
    half = [float(width[row]) / 2 + LANE_SLACK_M for row in chosen]
    lines = [shapely.linestrings(line) for line in centrelines]
    polygons = shapely.buffer(lines, half, cap_style="flat", join_style="mitre") if chosen else ()
    place = {lane: row for row, lane in enumerate(chosen)}
    continues = np.zeros((len(chosen), len(chosen)), np.bool_)
    for lane in chosen:
        onward = [place[after] for after in lanes.graph.successors[lane] if after in place]
        continues[place[lane], onward] = True
    return LaneStrips(
        lanes=lanes,
        lane=tuple(chosen),
        polygons=tuple(polygons),
        centrelines=centrelines,
        in_junction=lanes.in_junction[chosen].astype(np.bool_),
        continues=continues,
    )


def _is_near(line_m: Float[np.ndarray, "p 2"], around_m: Float[np.ndarray, "Q 2"] | None) -> bool:
    if around_m is None:
        return True
    low, high = around_m.min(axis=0) - NEARBY_M, around_m.max(axis=0) + NEARBY_M
    return bool((line_m.max(axis=0) > low).all() and (line_m.min(axis=0) < high).all())
