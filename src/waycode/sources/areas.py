"""Drivable areas: their common border, and polygons without holes. Used by every source whose map gives areas."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import shapely
from jaxtyping import Float

JOINT_M = 0.05  # neighbouring areas that are this far apart are one area: maps are drawn by hand
LEAST_HOLE_M2 = 1.0  # a smaller hole is a flaw where areas meet, not an island
LEAST_LENGTH_M = 0.1


def union(polygons: Sequence[Any]) -> Any:
    """The common area of shapely polygons, with slivers between neighbours closed."""
    sound = shapely.make_valid(np.asarray(polygons, dtype=object))
    grown = shapely.union_all(shapely.buffer(sound, JOINT_M, join_style="mitre"))
    merged = shapely.buffer(grown, -JOINT_M, join_style="mitre")
    parts = [part for part in shapely.get_parts(merged) if part.geom_type == "Polygon" and not part.is_empty]
    return shapely.union_all([_without_flaws(part) for part in parts])


def border_lines(area: Any, region: Any = None) -> list[Float[np.ndarray, "_ 2"]]:
    """The rings around an area and its holes; with a region, the parts of them within it, and no edge at its border."""
    border = shapely.boundary(area)
    if region is not None:
        border = shapely.intersection(border, region)
    return lines_of(border)


def lines_of(geometry: Any) -> list[Float[np.ndarray, "_ 2"]]:
    """The lines of any shapely geometry, joined where one goes on from another."""
    parts = [part for part in shapely.get_parts(geometry) if part.geom_type in ("LineString", "LinearRing")]
    if not parts:
        return []
    joined = shapely.get_parts(shapely.line_merge(shapely.multilinestrings(parts)))
    return [points_of(line) for line in joined if line.length > LEAST_LENGTH_M]


def points_of(geometry: Any) -> Float[np.ndarray, "p 2"]:
    """The points of a line or of a ring, without heights."""
    return np.asarray(shapely.get_coordinates(geometry), np.float64)


def rings(polygons: Iterable[Any]) -> list[Float[np.ndarray, "_ 2"]]:
    """Polygons as open rings (last point != first); a polygon with holes is cut into pieces that have none."""
    return [
        points_of(piece.exterior)[:-1]
        for polygon in polygons
        for part in shapely.get_parts(shapely.make_valid(polygon))
        if part.geom_type == "Polygon"
        for piece in _without_holes(part)
    ]


def _without_holes(polygon: Any) -> list[Any]:
    if not polygon.interiors:
        return [polygon]
    left, bottom, right, top = polygon.bounds
    cut = shapely.Polygon(polygon.interiors[0]).centroid.x  # a cut through a hole opens it
    halves = (shapely.box(left, bottom, cut, top), shapely.box(cut, bottom, right, top))
    return [
        piece
        for half in halves
        for part in shapely.get_parts(shapely.intersection(polygon, half))
        if part.geom_type == "Polygon"
        for piece in _without_holes(part)
    ]


def _without_flaws(polygon: Any) -> Any:
    islands = [hole for hole in polygon.interiors if shapely.Polygon(hole).area >= LEAST_HOLE_M2]
    return shapely.Polygon(polygon.exterior, islands)
