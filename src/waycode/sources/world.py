"""Tracks, polylines and drivable areas in world coordinates (float64), which sources convert to the scene frame."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import shapely
from jaxtyping import Bool, Float
from shapely.ops import substring

from waycode.scene import Polylines, Tracks
from waycode.scene.frames import HEADING_STEP_RAD, VELOCITY_STEP_MPS, scene_origin, snap, to_scene_frame, wrap_angle
from waycode.scene.geometry import resample

_JOINT_M = 0.05  # maps are drawn by hand: areas with a gap this narrow between them are one area
_MIN_HOLE_M2 = 1.0  # a smaller hole is a drawing error where areas meet, not an island


@dataclass(frozen=True)
class CroppedLine:
    """The part of a line within a region."""

    points_m: Float[np.ndarray, "p 2"]
    keeps_start: bool  # whether the start of the line is within the region
    keeps_end: bool  # whether the end of the line is within the region


@dataclass(frozen=True, kw_only=True)
class WorldTracks:
    """Tracks in world coordinates. Values where `valid` is false are ignored and may be NaN."""

    ids: Sequence[str]
    types: Sequence[int]  # TrackType
    length_m: Float[np.ndarray, " A"]  # of the bounding box
    width_m: Float[np.ndarray, " A"]
    position_m: Float[np.ndarray, "A T 2"]  # centre of the bounding box
    heading_rad: Float[np.ndarray, "A T"]  # counter-clockwise from +x
    velocity_mps: Float[np.ndarray, "A T 2"]  # of the centre; see `velocity_from_positions`
    valid: Bool[np.ndarray, "A T"]  # which samples were observed
    to_predict: Sequence[int] = ()  # indices of the tracks whose future is of interest
    ego_index: int | None = None  # index of the ego's track

    def origin_m(self) -> tuple[float, float]:
        """The origin of a scene frame in the middle of the observed positions."""
        return scene_origin(self.position_m, self.valid)

    def in_scene_frame(self, origin_m: tuple[float, float]) -> Tracks:
        """The tracks relative to `origin_m`: rounded, so that they compress well, and 0 where `valid` is false."""

        def masked(values: np.ndarray, step: float) -> np.ndarray:
            return snap(np.where(self.valid, values, 0.0), step)

        position = to_scene_frame(np.where(self.valid[..., None], self.position_m, np.asarray(origin_m)), origin_m)
        return Tracks(
            ids=tuple(self.ids),
            types=np.array(self.types, np.int8).reshape(-1),
            length_m=np.asarray(self.length_m, np.float32),
            width_m=np.asarray(self.width_m, np.float32),
            x_m=np.ascontiguousarray(position[..., 0]),
            y_m=np.ascontiguousarray(position[..., 1]),
            heading_rad=masked(wrap_angle(np.where(self.valid, self.heading_rad, 0.0)), HEADING_STEP_RAD),
            vx_mps=masked(self.velocity_mps[..., 0], VELOCITY_STEP_MPS),
            vy_mps=masked(self.velocity_mps[..., 1], VELOCITY_STEP_MPS),
            valid=self.valid,
            to_predict=np.array(self.to_predict, np.int32).reshape(-1),
            ego_index=self.ego_index,
        )


def velocity_from_positions(
    position_m: Float[np.ndarray, "A T 2"], valid: Bool[np.ndarray, "A T"], *, dt_s: float
) -> Float[np.ndarray, "A T 2"]:
    """Central differences of observed positions, one-sided at gaps, zero for an isolated sample."""
    observed_m = np.where(valid[..., None], position_m, np.nan)
    ahead = np.diff(observed_m, axis=1, append=np.nan) / dt_s
    behind = np.diff(observed_m, axis=1, prepend=np.nan) / dt_s
    known = np.isfinite(ahead).astype(float) + np.isfinite(behind)
    return (np.nan_to_num(ahead) + np.nan_to_num(behind)) / np.maximum(known, 1)


def scene_polylines(lines_m: Iterable[Float[np.ndarray, "_ 2"]], origin_m: tuple[float, float]) -> Polylines:
    """Lines in world coordinates as polylines in the scene frame."""
    return Polylines.of([to_scene_frame(line, origin_m) for line in lines_m])


def mean_lane_width_m(centreline_m: Float[np.ndarray, "p 2"], boundaries: Iterable[Any], *, spacing_m: float) -> float:
    """Mean distance from the centreline, sampled every `spacing_m`, to the left plus that to the right boundary."""
    points = shapely.points(resample(centreline_m, spacing_m=spacing_m))
    return sum(float(shapely.distance(points, boundary).mean()) for boundary in boundaries)


def crop_line(line: Any, region: Any, *, min_length_m: float = 0.5) -> CroppedLine | None:
    """A line from its first to its last point in a region; None if less than `min_length_m` of a cut line remains."""
    inside = shapely.get_coordinates(shapely.intersection(line, region))
    along_m = shapely.line_locate_point(line, shapely.points(inside))
    first_m, last_m = float(along_m.min(initial=np.inf)), float(along_m.max(initial=-np.inf))
    keeps_start, keeps_end = first_m < 1e-6, last_m > line.length - 1e-6
    if keeps_start and keeps_end:
        return CroppedLine(shapely.get_coordinates(line), True, True)
    if last_m - first_m < min_length_m:
        return None
    return CroppedLine(shapely.get_coordinates(substring(line, first_m, last_m)), keeps_start, keeps_end)


def union(polygons: Sequence[Any]) -> Any:
    """The common area of shapely polygons, with the slivers between neighbours closed."""
    sound = shapely.make_valid(np.asarray(polygons, dtype=object))
    grown = shapely.union_all(shapely.buffer(sound, _JOINT_M, join_style="mitre"))
    merged = shapely.buffer(grown, -_JOINT_M, join_style="mitre")
    parts = [part for part in shapely.get_parts(merged) if part.geom_type == "Polygon" and not part.is_empty]
    islands = [[hole for hole in part.interiors if shapely.Polygon(hole).area >= _MIN_HOLE_M2] for part in parts]
    return shapely.union_all([shapely.Polygon(part.exterior, keep) for part, keep in zip(parts, islands, strict=True)])


def border_lines(area: Any, region: Any = None) -> list[Float[np.ndarray, "_ 2"]]:
    """The outer rings and holes of an area, cut to `region` if given. The border of the region itself is no edge."""
    border = shapely.boundary(area)
    if region is not None:
        border = shapely.intersection(border, region)
    return [shapely.get_coordinates(line) for line in merged_lines(border)]


def merged_lines(geometry: Any, *, min_length_m: float = 0.1) -> list[Any]:
    """The lines of a shapely geometry, joined where they meet end to end, without short remains of intersections."""
    parts = [part for part in shapely.get_parts(geometry) if part.geom_type in ("LineString", "LinearRing")]
    joined = shapely.get_parts(shapely.line_merge(shapely.multilinestrings(parts))) if parts else []
    return [line for line in joined if line.length >= min_length_m]


def rings(polygons: Iterable[Any]) -> list[Float[np.ndarray, "_ 2"]]:
    """Polygons as open rings (last point != first). A polygon with holes is cut into pieces without holes."""
    return [
        shapely.get_coordinates(piece.exterior)[:-1]
        for polygon in polygons
        for piece in pieces_without_holes(shapely.make_valid(polygon))
    ]


def pieces_without_holes(area: Any, *, min_area_m2: float = 0.0) -> list[Any]:
    """Polygons without holes that cover an area. A polygon with a hole is cut vertically through the hole's middle."""
    pieces = []
    for polygon in shapely.get_parts(area):
        if polygon.geom_type != "Polygon" or polygon.area < min_area_m2:
            continue
        if not polygon.interiors:
            pieces.append(polygon)
            continue
        left, bottom, right, top = polygon.bounds
        cut = polygon.interiors[0].centroid.x
        for half in (shapely.box(left, bottom, cut, top), shapely.box(cut, bottom, right, top)):
            pieces += pieces_without_holes(polygon.intersection(half), min_area_m2=min_area_m2)
    return pieces
