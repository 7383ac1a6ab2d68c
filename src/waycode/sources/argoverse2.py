"""Argoverse 2 motion forecasting: `scenario_<id>.parquet` with the tracks, `log_map_archive_<id>.json` with the map.

110 steps at 10 Hz, of which 50 are history (the test split ends there: its future is masked). Positions are used as
recorded; a filter's start shows in the first half second of a track, where they do not quite fit the velocities.

What the format does not say is filled in or left unknown as follows. Road users have no sizes: each type gets a
typical one (`SIZES_M`). A motorcyclist is a narrow VEHICLE, as it moves with the traffic in lanes; bicycles without a
rider, static and unknown objects are OTHER. There are no speed limits, signals or routes.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely
from jaxtyping import Bool, Float, Int

from waycode.scene import (
    EdgeType,
    GraphOrigin,
    Lanes,
    LaneType,
    LineType,
    MapFeatures,
    Polylines,
    Scene,
    Tracks,
    TrackType,
    as_pairs,
)
from waycode.scene.frames import scene_origin, snap, to_scene_frame, tracks_from_world
from waycode.scene.geometry import arclengths, directions, interpolate, resample
from waycode.sources.areas import border_lines, lines_of, rings, union
from waycode.sources.base import SourceError

STEP_S = 0.1
CURRENT_STEP = 49
EGO_ID = "AV"
SCORED_CATEGORY, FOCAL_CATEGORY = 2, 3

TRACK_TYPES = {
    "vehicle": TrackType.VEHICLE,
    "bus": TrackType.VEHICLE,
    "motorcyclist": TrackType.VEHICLE,
    "pedestrian": TrackType.PEDESTRIAN,
    "cyclist": TrackType.CYCLIST,
}  # every other type is OTHER
SIZES_M = {
    "vehicle": (4.7, 1.9),
    "bus": (11.5, 2.6),
    "motorcyclist": (2.2, 0.9),
    "cyclist": (1.8, 0.7),
    "riderless_bicycle": (1.8, 0.6),
    "pedestrian": (0.6, 0.6),
}  # typical length and width
EGO_SIZE_M = (4.87, 1.85)  # the recording cars are Ford Fusions
OTHER_SIZE_M = (1.0, 1.0)
CAP_DISTANCE_M, CAP_COSINE = 1.5, 0.5  # an edge this close to a lane's end and this much across it

LANE_TYPES = {"VEHICLE": LaneType.STREET, "BIKE": LaneType.BIKE, "BUS": LaneType.BUS}
LINE_TYPES = {
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
TRACK_COLUMNS = (
    "track_id", "object_type", "object_category", "timestep", "position_x", "position_y", "heading", "velocity_x",
    "velocity_y", "scenario_id", "num_timestamps", "city",
)  # fmt: skip

World = Mapping[str, Any]


@dataclass(frozen=True, init=False)
class Argoverse2Source:
    """Scenarios under the given paths: scenario folders, or folders of scenario folders."""

    paths: tuple[str, ...]

    def __init__(self, paths: str | Path | Sequence[str | Path]):
        several = [paths] if isinstance(paths, str | Path) else paths
        object.__setattr__(self, "paths", tuple(str(path) for path in several))

    @property
    def name(self) -> str:
        return "argoverse2"

    def references(self) -> list[str]:
        """The Parquet file of each scenario."""
        found: list[str] = []
        for path in map(Path, self.paths):
            if not path.is_dir():
                raise SourceError(f"{path} is not a folder: expected a scenario's folder, or a folder of such folders")
            here = sorted(path.glob("scenario_*.parquet")) or sorted(path.glob("*/scenario_*.parquet"))
            if not here:
                raise SourceError(f"{path} has no scenario_<id>.parquet, nor has a folder directly in it")
            found += [str(file) for file in here]
        return found

    def read(self, reference: str) -> Scene:
        file = Path(reference)
        table = _read_table(file)
        world_map = _read_map(file)
        samples = {name: table.column(name).to_numpy() for name in TRACK_COLUMNS}
        position_m, valid = _positions(samples, file)
        origin_m = scene_origin(position_m, valid)
        try:
            features = _map_features(world_map, origin_m)
        except (LookupError, TypeError, ValueError, shapely.errors.ShapelyError) as error:
            raise SourceError(f"the map of {file} lacks something that is expected of it: {error!r}") from error
        return Scene(
            id=str(samples["scenario_id"][0]),
            source=self.name,
            dt_s=STEP_S,
            current_step=CURRENT_STEP,
            origin_m=origin_m,
            tracks=_tracks(samples, position_m, valid, origin_m),
            map=features,
            tags=(str(samples["city"][0]),),
        )


def read(paths: str | Path | Sequence[str | Path]) -> Iterator[Scene]:
    """Every scene under the given paths."""
    source = Argoverse2Source(paths)
    for reference in source.references():
        yield source.read(reference)


def _read_table(file: Path) -> pa.Table:
    try:
        available = pq.read_schema(file).names
        missing = [name for name in TRACK_COLUMNS if name not in available]
        if missing:
            raise SourceError(f"{file} has no column {', '.join(missing)}; it has {', '.join(available)}")
        table = pq.read_table(file, columns=list(TRACK_COLUMNS))
    except (OSError, pa.ArrowInvalid) as error:
        raise SourceError(f"{file} cannot be read as a Parquet file ({error})") from error
    if table.num_rows == 0:
        raise SourceError(f"{file} has no rows: expected one for each track and time step")
    return table


def _read_map(file: Path) -> World:
    maps = sorted(file.parent.glob("log_map_archive_*.json"))
    if len(maps) != 1:
        raise SourceError(f"{file.parent} has {len(maps)} files log_map_archive_*.json, expected one")
    try:
        content = json.loads(maps[0].read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise SourceError(f"{maps[0]} cannot be read as JSON ({error})") from error
    missing = [name for name in ("lane_segments", "drivable_areas", "pedestrian_crossings") if name not in content]
    if missing:
        raise SourceError(f"{maps[0]} has no {', '.join(missing)}; it has {', '.join(content)}")
    return dict(content)


def _positions(samples: World, file: Path) -> tuple[Float[np.ndarray, "A T 2"], Bool[np.ndarray, "A T"]]:
    """World positions by track (in the order of their first row) and step, and where there are any."""
    row, num_tracks = _rows(samples["track_id"])
    num_steps, step = int(samples["num_timestamps"][0]), samples["timestep"]
    if num_steps <= CURRENT_STEP or step.min() < 0 or step.max() >= num_steps:
        raise SourceError(
            f"{file} has steps {step.min()} to {step.max()} of {num_steps}, expected {CURRENT_STEP + 1} or more"
        )
    valid = np.zeros((num_tracks, num_steps), np.bool_)
    valid[row, step] = True
    position_m = np.zeros((num_tracks, num_steps, 2))
    position_m[row, step] = np.stack([samples["position_x"], samples["position_y"]], axis=-1)
    return position_m, valid


def _rows(track_ids: np.ndarray) -> tuple[Int[np.ndarray, " n"], int]:
    """The number of each sample's track, counted from the first track in the file on, and how many there are."""
    numbers: dict[str, int] = {}
    rows = [numbers.setdefault(str(track_id), len(numbers)) for track_id in track_ids]
    return np.array(rows, np.int64), len(numbers)


def _tracks(
    samples: World,
    position_m: Float[np.ndarray, "A T 2"],
    valid: Bool[np.ndarray, "A T"],
    origin_m: tuple[float, float],
) -> Tracks:
    row, _ = _rows(samples["track_id"])
    _, first = np.unique(row, return_index=True)

    def by_step(name: str) -> np.ndarray:
        array = np.zeros(valid.shape)
        array[row, samples["timestep"]] = samples[name]
        return array

    ids = tuple(str(track_id) for track_id in samples["track_id"][first])
    kinds = [str(kind) for kind in samples["object_type"][first]]
    sizes = [EGO_SIZE_M if i == EGO_ID else SIZES_M.get(k, OTHER_SIZE_M) for i, k in zip(ids, kinds, strict=True)]
    category = samples["object_category"][first]
    of_interest = [*np.flatnonzero(category == FOCAL_CATEGORY), *np.flatnonzero(category == SCORED_CATEGORY)]
    return tracks_from_world(
        ids,
        [TRACK_TYPES.get(kind, TrackType.OTHER) for kind in kinds],
        length_m=np.array([length for length, _ in sizes]),
        width_m=np.array([width for _, width in sizes]),
        position_m=position_m,
        heading_rad=by_step("heading"),
        velocity_mps=np.stack([by_step("velocity_x"), by_step("velocity_y")], axis=-1),
        valid=valid,
        origin_m=origin_m,
        to_predict=[int(track) for track in of_interest],
        ego_index=ids.index(EGO_ID) if EGO_ID in ids else None,
    )


def _map_features(world: World, origin_m: tuple[float, float]) -> MapFeatures:
    segments = list(world["lane_segments"].values())
    lines = _road_lines(segments)
    areas = [shapely.polygons(_points(area["area_boundary"])) for area in world["drivable_areas"].values()]
    edges = _without_caps(border_lines(union(areas)), _cut_ends(segments)) if areas else []

    def polylines(world_lines: Sequence[np.ndarray]) -> Polylines:
        return Polylines.of([to_scene_frame(line, origin_m) for line in world_lines])

    return MapFeatures(
        lanes=_lanes(segments, origin_m),
        road_lines=polylines([points for points, _ in lines]),
        road_line_types=np.array([kind for _, kind in lines], np.int8),
        road_edges=polylines(edges),
        road_edge_types=np.full(len(edges), EdgeType.BOUNDARY, np.int8),
        crosswalks=polylines([_crosswalk(crossing) for crossing in world["pedestrian_crossings"].values()]),
        drivable_areas=polylines(rings(areas)),
    )


def _points(points: Sequence[Mapping[str, float]]) -> Float[np.ndarray, "p 2"]:
    return np.array([(point["x"], point["y"]) for point in points], np.float64).reshape(-1, 2)


def _lanes(segments: Sequence[World], origin_m: tuple[float, float]) -> Lanes:
    index = {segment["id"]: i for i, segment in enumerate(segments)}
    centrelines = [_centreline(segment) for segment in segments]
    widths = [_width_m(segment, line) for segment, line in zip(segments, centrelines, strict=True)]
    headings = [_middle_heading(line) for line in centrelines]
    count = len(segments)

    def neighbours(side: str) -> Iterator[tuple[int, int]]:
        for i, segment in enumerate(segments):
            j = index.get(segment[f"{side}_neighbor_id"])
            # The neighbour across the middle of the road is listed too, although it runs the other way.
            if j is not None and np.cos(headings[i] - headings[j]) > 0:
                yield i, j

    return Lanes(
        ids=tuple(str(segment["id"]) for segment in segments),
        types=np.array([LANE_TYPES.get(segment["lane_type"], LaneType.UNKNOWN) for segment in segments], np.int8),
        centrelines=Polylines.of([to_scene_frame(line, origin_m) for line in centrelines]),
        speed_limit_mps=np.zeros(count, np.float32),
        speed_limit_known=np.zeros(count, np.bool_),
        width_m=snap(np.array(widths, np.float64), 2.0**-10),
        width_known=np.ones(count, np.bool_),
        in_junction=np.array([segment["is_intersection"] for segment in segments], np.bool_),
        successors=as_pairs(
            (i, index[after]) for i, segment in enumerate(segments) for after in segment["successors"] if after in index
        ),
        left_neighbours=as_pairs(neighbours("left")),
        right_neighbours=as_pairs(neighbours("right")),
        graph_origin=GraphOrigin.RECORDED,
    )


def _centreline(segment: World) -> Float[np.ndarray, "p 2"]:
    """The recorded centreline, or, in the files that have none, the middle of the two boundaries."""
    recorded = segment.get("centerline")
    if recorded:
        return _points(recorded)
    left, right = _points(segment["left_lane_boundary"]), _points(segment["right_lane_boundary"])
    count = max(len(resample(side, spacing_m=1.0)) for side in (left, right))
    both = [interpolate(side, np.linspace(0, arclengths(side)[-1], count)) for side in (left, right)]
    return np.mean(both, axis=0)


def _width_m(segment: World, centreline: Float[np.ndarray, "p 2"]) -> float:
    """Mean distance from the centreline to the left boundary plus that to the right one."""
    points = shapely.points(resample(centreline, spacing_m=1.0))
    sides = (shapely.linestrings(_points(segment[f"{side}_lane_boundary"])) for side in ("left", "right"))
    return float(sum(shapely.distance(points, side).mean() for side in sides))


def _middle_heading(centreline: Float[np.ndarray, "p 2"]) -> float:
    along = arclengths(centreline)
    middle = np.searchsorted(along, along[-1] / 2, side="right") - 1
    return float(directions(centreline)[middle])


def _road_lines(segments: Sequence[World]) -> list[tuple[Float[np.ndarray, "_ 2"], LineType]]:
    """The painted boundaries; one that two lanes share (perhaps drawn the other way round) comes once."""
    found: dict[bytes, tuple[np.ndarray, LineType]] = {}
    for segment in segments:
        for side in ("left", "right"):
            mark = segment[f"{side}_lane_mark_type"]
            if mark == "NONE":
                continue
            points = _points(segment[f"{side}_lane_boundary"])
            key = min(np.round(points, 2).tobytes(), np.round(points[::-1], 2).tobytes())
            kind = LINE_TYPES.get(mark, LineType.UNKNOWN)
            if key not in found or found[key][1] == LineType.UNKNOWN:
                found[key] = (points, kind)
    return list(found.values())


def _cut_ends(segments: Sequence[World]) -> Float[np.ndarray, "n 3"]:
    """Where the file's edge cuts a lane: x, y and heading of the ends at which no known lane goes on."""
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
    """Road edges without the straight pieces that run across the road where the file ends: nothing stands there."""
    ends = shapely.points(cut_ends[:, :2])
    kept = []
    for edge in edges:
        pieces = shapely.linestrings(np.stack([edge[:-1], edge[1:]], axis=1))
        across = np.abs(np.cos(directions(edge)[:-1, None] - cut_ends[None, :, 2])) < CAP_COSINE
        cap = across & (shapely.distance(pieces[:, None], ends[None]) < CAP_DISTANCE_M)
        kept += list(pieces[~cap.any(axis=1)])
    return lines_of(shapely.multilinestrings(kept))


def _crosswalk(crossing: World) -> Float[np.ndarray, "p 2"]:
    """The polygon between the two edges of a crossing, which may be drawn in the same or in opposite directions."""
    one, other = _points(crossing["edge1"]), _points(crossing["edge2"])
    ring = np.concatenate([one, other[::-1]])
    return ring if shapely.polygons(ring).is_valid else np.concatenate([one, other])
