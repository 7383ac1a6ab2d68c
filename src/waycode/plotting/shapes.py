"""Drawing primitives: filled shapely geometries, polylines, dashes and rounded boxes, all in metres."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import shapely
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline

from waycode.scene import Polylines
from waycode.scene.geometry import arclengths, interpolate

Polyline = Float[np.ndarray, "_ 2"]  # "_": in a list, each may have another length


def fill(axes: Axes, geometry: Any, *, colour: str, layer: int, alpha: float = 1.0) -> None:
    """Fills a shapely geometry, without its holes; draws nothing if it has no area.

    Args:
        axes: Axes to draw into.
        geometry: Any shapely geometry; only its polygons are drawn.
        colour: Any colour of matplotlib.
        layer: Drawing order, a `Layer`.
        alpha: Opacity.
    """
    outline = outline_path(geometry)
    if outline is not None:
        axes.add_patch(PathPatch(outline, facecolor=colour, edgecolor="none", alpha=alpha, zorder=layer))


def stroke(axes: Axes, lines: Sequence[Polyline], *, colour: str, width: float, layer: int, cap: str = "butt") -> None:
    """Draws polylines in one colour.

    Args:
        axes: Axes to draw into.
        lines: Polylines in metres.
        colour: Any colour of matplotlib.
        width: Line width in typographic points.
        layer: Drawing order, a `Layer`.
        cap: Form of the ends: "butt" or "round".
    """
    if lines:
        collection = LineCollection(list(lines), colors=colour, linewidths=width, zorder=layer)
        collection.set_capstyle(cap)  # type: ignore[arg-type]
        collection.set_joinstyle("round")
        axes.add_collection(collection, autolim=False)


def outline_path(geometry: Any) -> Outline | None:
    """All rings of a geometry as one matplotlib path; None if it has no area."""
    rings = []
    for polygon in shapely.get_parts(geometry):
        if polygon.geom_type == "Polygon" and not polygon.is_empty:
            oriented = shapely.geometry.polygon.orient(polygon)  # matplotlib leaves out rings of opposite orientation
            rings += [np.asarray(ring.coords) for ring in (oriented.exterior, *oriented.interiors)]
    return Outline.make_compound_path(*(Outline(ring, closed=True) for ring in rings)) if rings else None


def polygons_in_bounds(polylines: Polylines, bounds_m: tuple[float, float, float, float]) -> list[Any]:
    """The polygons that intersect the bounds, made valid where they intersect themselves."""
    polygons = [shapely.Polygon(points) for points in polylines.as_list() if len(points) >= 3]
    window = shapely.box(*bounds_m)
    return [shapely.make_valid(polygon) for polygon in polygons if polygon.intersects(window)]


def indices_in_bounds(
    polylines: Polylines, bounds_m: tuple[float, float, float, float], *, margin_m: float = 5.0
) -> list[int]:
    """Indices of the polylines whose bounding box, enlarged by `margin_m`, intersects the bounds (x, y, x, y)."""
    left, bottom, right, top = bounds_m
    chosen = []
    for index, points in enumerate(polylines.as_list()):
        low, high = points.min(axis=0) - margin_m, points.max(axis=0) + margin_m
        if low[0] < right and high[0] > left and low[1] < top and high[1] > bottom:
            chosen.append(index)
    return chosen


def dashes(points_m: Polyline, *, dash_m: float, gap_m: float) -> list[Polyline]:
    """The painted pieces of a broken line; vertices within a dash are kept."""
    along = arclengths(points_m)
    pieces = []
    for start in np.arange(0.0, float(along[-1]), dash_m + gap_m):
        end = min(start + dash_m, float(along[-1]))
        inside = along[(along > start) & (along < end)]
        pieces.append(interpolate(points_m, np.concatenate([[start], inside, [end]])))
    return pieces


def offset_polyline(points_m: Polyline, offset_m: float) -> Polyline:
    """The polyline shifted sideways, left positive."""
    tangent = np.gradient(points_m.astype(np.float64), axis=0)
    length = np.maximum(np.linalg.norm(tangent, axis=1, keepdims=True), 1e-9)
    moved: Polyline = points_m + offset_m * np.stack([-tangent[:, 1], tangent[:, 0]], axis=-1) / length
    return moved


def rounded_box(corners_m: Float[np.ndarray, "4 2"], radius_m: float) -> Any:
    """A shapely polygon: a box with rounded corners."""
    return shapely.Polygon(corners_m).buffer(-radius_m, join_style="mitre").buffer(radius_m, quad_segs=4)
