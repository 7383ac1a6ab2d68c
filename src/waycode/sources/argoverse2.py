"""Argoverse 2 motion forecasting: `scenario_<id>.parquet` with the tracks, `log_map_archive_<id>.json` with the map.

A scenario has 110 steps at 10 Hz; 50 are history (the test split has no more, its future is masked). Positions are
used as recorded. In the first half second of a track they differ slightly from the velocities, because the recording
filter is settling.

The format has no sizes, speed limits, signals or routes. Each agent type gets a typical size (`_SIZES_M`); the rest
stays unknown. A motorcyclist is a narrow VEHICLE, because it drives in lanes with the traffic. Riderless bicycles,
static and unknown objects are OTHER.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely
from jaxtyping import Float

from waycode.dataset.files import parse_json
from waycode.scene import EdgeType, GraphOrigin, Lanes, LaneType, LineType, MapFeatures, Scene, TrackType, as_pairs
from waycode.scene.frames import POSITION_STEP_M, snap
from waycode.scene.geometry import arclengths, directions, interpolate, resample
from waycode.sources.base import SourceError, find_files, read_all, reading
from waycode.sources.world import (
    WorldTracks,
    border_lines,
    mean_lane_width_m,
    merged_lines,
    rings,
    scene_polylines,
    union,
)  # fmt: skip

_STEP_S = 0.1
_CURRENT_STEP = 49
_EGO_ID = "AV"
_SCORED_CATEGORY, _FOCAL_CATEGORY = 2, 3

_TRACK_TYPES = {
    "vehicle": TrackType.VEHICLE,
    "bus": TrackType.VEHICLE,
    "motorcyclist": TrackType.VEHICLE,
    "pedestrian": TrackType.PEDESTRIAN,
    "cyclist": TrackType.CYCLIST,
}  # every other type is OTHER
_SIZES_M = {
    "vehicle": (4.7, 1.9),
    "bus": (11.5, 2.6),
    "motorcyclist": (2.2, 0.9),
    "cyclist": (1.8, 0.7),
    "riderless_bicycle": (1.8, 0.6),
    "pedestrian": (0.6, 0.6),
}  # typical length and width
_EGO_SIZE_M = (4.87, 1.85)  # the recording cars are Ford Fusions
_OTHER_SIZE_M = (1.0, 1.0)
_CAP_DISTANCE_M, _CAP_COSINE = 1.5, 0.5  # an edge this close to a lane end, and this much across the lane, is a cap

_LANE_TYPES = {"VEHICLE": LaneType.STREET, "BIKE": LaneType.BIKE, "BUS": LaneType.BUS}
_LINE_TYPES = {
    "DASHED_WHITE": LineType.BROKEN_SINGLE_WHITE,
    "DOUBLE_DASH_WHITE": LineType.BROKEN_SINGLE_WHITE,
    "SOLID_WHITE": LineType.SOLID_SINGLE_WHITE,
    "DOUBLE_SOLID_WHITE": LineType.SOLID_DOUBLE_WHITE,
    "DASHED_YELLOW": LineType.BROKEN_SINGLE_YELLOW,
    "DOUBLE_DASH_YELLOW": LineType.BROKEN_DOUBLE_YELLOW,
    "SOLID_YELLOW": LineType.SOLID_SINGLE_YELLOW,
    "DOUBLE_SOLID_YELLOW": LineType.SOLID_DOUBLE_YELLOW,
    "DASH_SOLID_YELLOW": LineType.PASSING_DOUBLE_YELLOW,
    "SOLID_DASH_YELLOW": LineType.PASSING_DOUBLE_YELLOW,
}  # other marks (blue, dash and solid white) are UNKNOWN; "NONE" is no line
_TEXT, _WHOLE, _NUMBER = pa.string(), pa.int64(), pa.float64()
_TRACK_COLUMNS = {
    "track_id": _TEXT, "object_type": _TEXT, "object_category": _WHOLE, "timestep": _WHOLE, "position_x": _NUMBER,
    "position_y": _NUMBER, "heading": _NUMBER, "velocity_x": _NUMBER, "velocity_y": _NUMBER, "scenario_id": _TEXT,
    "num_timestamps": _WHOLE, "city": _TEXT,
}  # fmt: skip
_MAX_STEPS = 10_000  # the format has 110; a damaged number must not ask for all memory

_Json = Mapping[str, Any]


@dataclass(frozen=True)
class Argoverse2Source:
    """Scenarios of the motion forecasting dataset."""

    paths: str | Path | Sequence[str | Path]  # Parquet files, and folders that are searched recursively

    @property
    def name(self) -> str:
        return "argoverse2"

    def references(self) -> list[str]:
        """The Parquet file of each scenario."""
        pattern = "scenario_*.parquet"
        return [str(file) for file in find_files(self.paths, lambda name: fnmatch(name, pattern), expected=pattern)]

    def read(self, reference: str) -> Scene:
        file = Path(reference)
        with reading(file):
            samples = _read_samples(file)
            tracks = _tracks(samples, file)
            origin_m = tracks.origin_m()
            with reading("its map cannot be converted"):
                features = _map_features(_read_map(file), origin_m)
        return Scene(
            id=str(samples["scenario_id"][0]),
            source=self.name,
            dt_s=_STEP_S,
            current_step=_CURRENT_STEP,
            origin_m=origin_m,
            tracks=tracks.in_scene_frame(origin_m),
            map=features,
            tags=(str(samples["city"][0]),),
        )


def read(paths: str | Path | Sequence[str | Path]) -> Iterator[Scene]:
    """All scenes under the given paths, one at a time."""
    return read_all(Argoverse2Source(paths))


def _read_samples(file: Path) -> dict[str, np.ndarray]:
    """The columns of the tracks, each of its type: a file may hold text where numbers belong."""
    table = _read_table(file)
    samples = {}
    for name, kind in _TRACK_COLUMNS.items():
        with reading(f"column {name}"):
            column = table.column(name)
            is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
            if is_text != (kind is _TEXT) or column.null_count:
                raise SourceError(f"it holds {column.type} with {column.null_count} nulls, expected {kind} without")
            samples[name] = column.cast(kind).to_numpy()
    return samples


def _read_table(file: Path) -> pa.Table:
    try:
        available = pq.read_schema(file).names
        missing = [name for name in _TRACK_COLUMNS if name not in available]
        if missing:
            raise SourceError(f"{file} has no column {', '.join(missing)}; it has {', '.join(available)}")
        table = pq.read_table(file, columns=list(_TRACK_COLUMNS))
    except (OSError, pa.ArrowInvalid) as error:
        raise SourceError(f"{file} cannot be read as a Parquet file ({error})") from error
    if table.num_rows == 0:
        raise SourceError(f"{file} has no rows: expected one for each track and time step")
    return table


def _read_map(file: Path) -> _Json:
    maps = sorted(file.parent.glob("log_map_archive_*.json"))
    if len(maps) != 1:
        raise SourceError(f"{file.parent} has {len(maps)} files log_map_archive_*.json, expected one")
    try:
        content = parse_json(maps[0].read_bytes())
    except (OSError, ValueError) as error:
        raise SourceError(f"{maps[0]} cannot be read as JSON ({error})") from error
    missing = [name for name in ("lane_segments", "drivable_areas", "pedestrian_crossings") if name not in content]
    if missing:
        raise SourceError(f"{maps[0]} has no {', '.join(missing)}; it has {', '.join(content)}")
    return dict(content)


def _tracks(samples: _Json, file: Path) -> WorldTracks:
    """Tracks in the order of their first row in the file."""
    num_steps, step = int(samples["num_timestamps"][0]), samples["timestep"]
    if not _CURRENT_STEP < num_steps <= _MAX_STEPS or step.min() < 0 or step.max() >= num_steps:
        found = f"steps {step.min()} to {step.max()} of {num_steps}"
        raise SourceError(f"{file} has {found}, expected {_CURRENT_STEP + 1} to {_MAX_STEPS} steps")
    index_of: dict[str, int] = {}
    row = np.array([index_of.setdefault(str(track_id), len(index_of)) for track_id in samples["track_id"]], np.int64)
    _, first = np.unique(row, return_index=True)

    def by_step(name: str) -> Float[np.ndarray, "A T"]:
        array = np.zeros((len(index_of), num_steps))
        array[row, step] = samples[name]
        return array

    valid = np.zeros((len(index_of), num_steps), np.bool_)
    valid[row, step] = True
    ids = tuple(index_of)
    kinds = [str(kind) for kind in samples["object_type"][first]]
    sizes = [_EGO_SIZE_M if i == _EGO_ID else _SIZES_M.get(k, _OTHER_SIZE_M) for i, k in zip(ids, kinds, strict=True)]
    category = samples["object_category"][first]
    of_interest = [*np.flatnonzero(category == _FOCAL_CATEGORY), *np.flatnonzero(category == _SCORED_CATEGORY)]
    return WorldTracks(
        ids=ids,
        types=[_TRACK_TYPES.get(kind, TrackType.OTHER) for kind in kinds],
        length_m=np.array([length for length, _ in sizes]),
        width_m=np.array([width for _, width in sizes]),
        position_m=np.stack([by_step("position_x"), by_step("position_y")], axis=-1),
        heading_rad=by_step("heading"),
        velocity_mps=np.stack([by_step("velocity_x"), by_step("velocity_y")], axis=-1),
        valid=valid,
        to_predict=[int(track) for track in of_interest],
        ego_index=ids.index(_EGO_ID) if _EGO_ID in ids else None,
    )


def _map_features(world: _Json, origin_m: tuple[float, float]) -> MapFeatures:
    with reading("lane_segments"):
        segments = list(world["lane_segments"].values())
        lines, lanes, ends = _road_lines(segments), _lanes(segments, origin_m), _cut_ends(segments)
    with reading("drivable_areas"):
        areas = [shapely.polygons(_points(area["area_boundary"])) for area in world["drivable_areas"].values()]
        edges = _without_caps(border_lines(union(areas)), ends) if areas else []
    with reading("pedestrian_crossings"):
        crosswalks = [_crosswalk(crossing) for crossing in world["pedestrian_crossings"].values()]
    return MapFeatures(
        lanes=lanes,
        road_lines=scene_polylines([points for points, _ in lines], origin_m),
        road_line_types=np.array([kind for _, kind in lines], np.int8),
        road_edges=scene_polylines(edges, origin_m),
        road_edge_types=np.full(len(edges), EdgeType.BOUNDARY, np.int8),
        crosswalks=scene_polylines(crosswalks, origin_m),
        drivable_areas=scene_polylines(rings(areas), origin_m),
    )


def _points(points: Sequence[Mapping[str, float]]) -> Float[np.ndarray, "p 2"]:
    return np.array([(point["x"], point["y"]) for point in points], np.float64).reshape(-1, 2)


def _lanes(segments: Sequence[_Json], origin_m: tuple[float, float]) -> Lanes:
    index = {segment["id"]: i for i, segment in enumerate(segments)}
    centrelines = [_centreline(segment) for segment in segments]
    sides = [
        [shapely.linestrings(_points(segment[f"{side}_lane_boundary"])) for side in ("left", "right")]
        for segment in segments
    ]
    widths = [mean_lane_width_m(line, both, spacing_m=1.0) for line, both in zip(centrelines, sides, strict=True)]
    headings = [_middle_heading(line) for line in centrelines]
    count = len(segments)

    def neighbours(side: str) -> Iterator[tuple[int, int]]:
        for i, segment in enumerate(segments):
            j = index.get(segment[f"{side}_neighbor_id"])
            # The file also lists the neighbour across the centre line, which runs in the other direction.
            if j is not None and np.cos(headings[i] - headings[j]) > 0:
                yield i, j

    return Lanes(
        ids=tuple(str(segment["id"]) for segment in segments),
        types=np.array([_LANE_TYPES.get(segment["lane_type"], LaneType.UNKNOWN) for segment in segments], np.int8),
        centrelines=scene_polylines(centrelines, origin_m),
        speed_limit_mps=np.zeros(count, np.float32),
        speed_limit_known=np.zeros(count, np.bool_),
        width_m=snap(np.array(widths, np.float64), POSITION_STEP_M),
        width_known=np.ones(count, np.bool_),
        in_junction=np.array([segment["is_intersection"] for segment in segments], np.bool_),
        successors=as_pairs(
            (i, index[after]) for i, segment in enumerate(segments) for after in segment["successors"] if after in index
        ),
        left_neighbours=as_pairs(neighbours("left")),
        right_neighbours=as_pairs(neighbours("right")),
        graph_origin=GraphOrigin.RECORDED,
    )


def _centreline(segment: _Json) -> Float[np.ndarray, "p 2"]:
    """The recorded centreline; in files without centrelines, the middle of the two boundaries."""
    recorded = segment.get("centerline")
    if recorded:
        return _points(recorded)
    left, right = _points(segment["left_lane_boundary"]), _points(segment["right_lane_boundary"])
    count = max(len(resample(side, spacing_m=1.0)) for side in (left, right))
    both = [interpolate(side, np.linspace(0, arclengths(side)[-1], count)) for side in (left, right)]
    return np.mean(both, axis=0)


def _middle_heading(centreline: Float[np.ndarray, "p 2"]) -> float:
    along = arclengths(centreline)
    middle = np.searchsorted(along, along[-1] / 2, side="right") - 1
    return float(directions(centreline)[middle])


def _road_lines(segments: Sequence[_Json]) -> list[tuple[Float[np.ndarray, "_ 2"], LineType]]:
    """The painted boundaries. A boundary that two lanes share, in either direction, is listed once."""
    found: dict[bytes, tuple[np.ndarray, LineType]] = {}
    for segment in segments:
        for side in ("left", "right"):
            mark = segment[f"{side}_lane_mark_type"]
            if mark == "NONE":
                continue
            points = _points(segment[f"{side}_lane_boundary"])
            key = min(np.round(points, 2).tobytes(), np.round(points[::-1], 2).tobytes())
            kind = _LINE_TYPES.get(mark, LineType.UNKNOWN)
            if key not in found or found[key][1] == LineType.UNKNOWN:
                found[key] = (points, kind)
    return list(found.values())


def _cut_ends(segments: Sequence[_Json]) -> Float[np.ndarray, "n 3"]:
    """x, y and heading of lane ends without a known lane beyond them: the file's border cuts the road there."""
    known = {segment["id"] for segment in segments}
    ends = []
    for segment in segments:
        line = _centreline(segment)
        headings = directions(line)
        if known.isdisjoint(segment["predecessors"]):
            ends.append((*line[0], headings[0]))
        if known.isdisjoint(segment["successors"]):
            ends.append((*line[-1], headings[-1]))
    return np.array(ends, np.float64).reshape(-1, 3)


def _without_caps(
    edges: Sequence[Float[np.ndarray, "_ 2"]], cut_ends: Float[np.ndarray, "n 3"]
) -> list[Float[np.ndarray, "_ 2"]]:
    """Road edges without the pieces that run across the road where the file ends: the road continues there."""
    ends = shapely.points(cut_ends[:, :2])
    kept = []
    for edge in edges:
        pieces = shapely.linestrings(np.stack([edge[:-1], edge[1:]], axis=1))
        across = np.abs(np.cos(directions(edge)[:-1, None] - cut_ends[None, :, 2])) < _CAP_COSINE
        cap = across & (shapely.distance(pieces[:, None], ends[None]) < _CAP_DISTANCE_M)
        kept += list(pieces[~cap.any(axis=1)])
    return [shapely.get_coordinates(line) for line in merged_lines(shapely.multilinestrings(kept))]


def _crosswalk(crossing: _Json) -> Float[np.ndarray, "p 2"]:
    """The polygon between the two edges of a crossing, drawn in the same or in opposite directions."""
    one, other = _points(crossing["edge1"]), _points(crossing["edge2"])
    ring = np.concatenate([one, other[::-1]])
    return ring if shapely.polygons(ring).is_valid else np.concatenate([one, other])
