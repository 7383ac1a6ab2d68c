"""Validation of scenes: names every fault, each in one sentence."""

import json
from collections.abc import Iterator
from dataclasses import fields
from enum import IntEnum
from typing import Any

import numpy as np

from waycode.scene.types import (
    EdgeType,
    GraphOrigin,
    Lanes,
    LaneType,
    LineType,
    MapFeatures,
    Polylines,
    Route,
    Scene,
    Signals,
    SignalState,
    Tracks,
    TrackType,
    WaycodeError,
)

_MAX_EXTENT_M = 16_384.0  # float32 resolves 1/1024 m up to here
MAX_SPEED_MPS = 100.0
# Beyond these nothing on a road is measured, and sums of squares in float32 stay finite.
_MAX_SIZE_M = 200.0  # of a road user, and of a lane's width
_MAX_ORIGIN_M = 1e8  # the circumference of the earth has 4e7
_DT_RANGE_S = (1e-4, 60.0)
_MAX_STEPS = 100_000
_LINES_AND_POLYGONS = {
    "road_lines": 2, "road_edges": 2, "crosswalks": 3, "speed_bumps": 3, "driveways": 3, "drivable_areas": 3,
}  # the least number of points of each  # fmt: skip


class InvalidScene(WaycodeError):  # noqa: N818 (public name)
    """A scene that breaks the rules of `waycode.scene.types`; `faults` names each."""

    def __init__(self, scene_id: str, faults: list[str]):
        self.scene_id = scene_id
        self.faults = faults
        super().__init__(f"scene {scene_id!r} has {len(faults)} fault(s): " + "; ".join(faults))

    def __reduce__(self) -> tuple[type, tuple[str, list[str]]]:
        return InvalidScene, (self.scene_id, self.faults)


def validate(scene: Scene) -> None:
    """Raises `InvalidScene` if the scene has faults."""
    faults = faults_of(scene)
    if faults:
        raise InvalidScene(scene.id, faults)


def faults_of(scene: Scene) -> list[str]:
    """All faults of a scene; empty if it is valid."""
    features, lanes = scene.map, scene.map.lanes
    parts = {
        "tracks": scene.tracks,
        "lanes": lanes,
        "lanes.centrelines": lanes.centrelines,
        "map": features,
        **{name: getattr(features, name) for name in _LINES_AND_POLYGONS},
        "stop_signs": features.stop_signs,
        "signals": scene.signals,
        **({} if scene.route is None else {"route": scene.route}),
    }
    faults = [fault for name, part in parts.items() for fault in _form_faults(name, part)]
    if not faults:  # the checks below need arrays of the right type and number of axes
        with np.errstate(over="ignore", invalid="ignore"):
            faults = [
                *_track_faults(scene.tracks),
                *_lane_faults(lanes),
                *_map_faults(features),
                *_signal_faults(scene.signals, num_lanes=len(lanes), num_steps=scene.num_steps),
                *([] if scene.route is None else _route_faults(scene.route, len(lanes))),
            ]
    return [*_scene_faults(scene), *faults]


def _array_fields(part: Any) -> Iterator[tuple[str, Any, list[str], tuple[str, ...]]]:
    """Name, value, annotated axes and annotated data types of every array of a part."""
    for field in fields(part):
        kind: Any = field.type
        if hasattr(kind, "dim_str"):
            yield field.name, getattr(part, field.name), kind.dim_str.split(), kind.dtypes


def _form_faults(name: str, part: object) -> Iterator[str]:
    """Arrays whose data type or number of axes differs from the annotations of the part."""
    for field, value, axes, wanted in _array_fields(part):
        if not isinstance(value, np.ndarray):
            yield f"{name}.{field} is a {type(value).__name__}, expected an array of {wanted[0]}"
            continue
        if str(value.dtype) not in wanted:
            yield f"{name}.{field} holds {value.dtype}, expected {wanted[0]}"
        if value.ndim != len(axes) or (axes[-1] == "2" and value.shape[-1] != 2):
            yield f"{name}.{field} has shape {value.shape}, expected [{', '.join(axes)}]"


def _length_faults(name: str, part: object, **lengths: int) -> list[str]:
    """Arrays whose axes do not have these lengths; keywords are the letters of axes in the annotations of the part."""
    shapes = [
        (field, value.shape, tuple(lengths.get(axis, size) for axis, size in zip(axes, value.shape, strict=True)))
        for field, value, axes, _ in _array_fields(part)
    ]
    return [f"{name}.{field} has shape {got}, expected {want}" for field, got, want in shapes if got != want]


def _scene_faults(scene: Scene) -> Iterator[str]:
    for name in ("id", "source"):
        if not getattr(scene, name):
            yield f"{name} is empty"
        yield from _text_faults(name, (getattr(scene, name),))
    if not _DT_RANGE_S[0] <= scene.dt_s <= _DT_RANGE_S[1]:
        yield f"dt_s is {scene.dt_s}, expected {_DT_RANGE_S[0]:g} to {_DT_RANGE_S[1]:g} seconds"
    if np.ndim(scene.tracks.valid) == 2 and scene.num_steps > _MAX_STEPS:
        yield f"there are {scene.num_steps} steps, expected at most {_MAX_STEPS}"
    if np.ndim(scene.tracks.valid) == 2 and not 0 <= scene.current_step < scene.num_steps:
        yield f"current_step is {scene.current_step}, expected 0 to {scene.num_steps - 1}"
    origin = scene.origin_m
    if not (isinstance(origin, tuple) and len(origin) == 2 and np.all(np.abs(origin) <= _MAX_ORIGIN_M)):
        yield f"origin_m is {origin}, expected a pair of metres of at most {_MAX_ORIGIN_M:g}"
    yield from _text_faults("tags", scene.tags)
    yield from _rebuild_faults(scene.rebuild)


def _rebuild_faults(rebuild: Any) -> Iterator[str]:
    try:
        json.loads("null" if rebuild is None else rebuild)
    except (TypeError, ValueError) as error:
        yield f"rebuild is not JSON ({error})"
    except RecursionError:
        yield "rebuild is JSON that is nested too deeply"


def _text_faults(name: str, texts: Any) -> Iterator[str]:
    if not isinstance(texts, tuple) or not all(isinstance(text, str) for text in texts):
        yield f"{name} is {texts!r:.60}, expected text"
        return
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        yield f"{name} has text that UTF-8 cannot hold ({error.reason})"


def _track_faults(tracks: Tracks) -> Iterator[str]:
    count = len(tracks)
    wrong = _length_faults("tracks", tracks, A=count, T=tracks.num_steps)
    if wrong:  # the checks below need arrays that fit together
        yield from wrong
        return
    if count == 0:
        yield "tracks is empty, expected at least one road user"
    yield from _id_faults("tracks.ids", tracks.ids)
    yield from _enum_faults("tracks.types", tracks.types, TrackType)
    yield from _value_faults(tracks)
    if tracks.ego_index is not None and not 0 <= tracks.ego_index < count:
        yield f"tracks.ego_index is {tracks.ego_index}, expected None or 0 to {count - 1}"
    yield from _index_faults("tracks.to_predict", tracks.to_predict, count, "tracks", unique=True)


def _value_faults(tracks: Tracks) -> Iterator[str]:
    for name in ("x_m", "y_m", "heading_rad", "vx_mps", "vy_mps"):
        values = getattr(tracks, name)
        bad = np.count_nonzero(~np.isfinite(values))
        if bad:
            yield f"tracks.{name} has {bad} values that are not finite"
        if np.any(values[~tracks.valid] != 0):
            yield f"tracks.{name} has values where valid is false, expected zeros"
    if np.any(np.abs(tracks.position_m) > _MAX_EXTENT_M):
        yield f"tracks reach beyond {_MAX_EXTENT_M:.0f} m of origin_m"
    if np.any(np.abs(tracks.heading_rad) > np.pi + 1e-4):
        yield "tracks.heading_rad leaves [-pi, pi]: are these degrees?"
    fastest = float(np.nanmax(tracks.speed_mps, initial=0))
    if fastest > MAX_SPEED_MPS:
        yield f"tracks move at {fastest:.0f} m/s, expected at most {MAX_SPEED_MPS:.0f}"
    for name in ("length_m", "width_m"):
        yield from _size_faults(f"tracks.{name}", getattr(tracks, name), _MAX_SIZE_M)


def _lane_faults(lanes: Lanes) -> Iterator[str]:
    count = len(lanes)
    yield from _length_faults("lanes", lanes, L=count)
    yield from _id_faults("lanes.ids", lanes.ids)
    yield from _enum_faults("lanes.types", lanes.types, LaneType)
    yield from _known_faults("lanes.speed_limit", lanes.speed_limit_mps, lanes.speed_limit_known, MAX_SPEED_MPS)
    yield from _known_faults("lanes.width", lanes.width_m, lanes.width_known, _MAX_SIZE_M)
    if len(lanes.centrelines) != count:
        yield f"lanes.centrelines has {len(lanes.centrelines)} polylines, expected {count}"
    yield from _polyline_faults("lanes.centrelines", lanes.centrelines, 2)
    for name in ("successors", "left_neighbours", "right_neighbours"):
        pairs = getattr(lanes, name)
        yield from _index_faults(f"lanes.{name}", pairs, count, "lanes", unique=True)
        if len(pairs) and lanes.graph_origin == GraphOrigin.ABSENT:
            yield f"lanes.{name} is given, but graph_origin says that there is none"


def _known_faults(name: str, values: np.ndarray, known: np.ndarray, most: float) -> Iterator[str]:
    if values.shape != known.shape:
        return  # reported already
    yield from _size_faults(name, values[known], most, which="known values")
    if np.any(values[~known] != 0):
        yield f"{name} has values where it is not known, expected zeros"


def _map_faults(features: MapFeatures) -> Iterator[str]:
    for name, least in _LINES_AND_POLYGONS.items():
        yield from _polyline_faults(name, getattr(features, name), least)
    yield from _length_faults("map", features, N=len(features.road_lines), M=len(features.road_edges))
    yield from _enum_faults("map.road_line_types", features.road_line_types, LineType)
    yield from _enum_faults("map.road_edge_types", features.road_edge_types, EdgeType)
    signs = features.stop_signs
    yield from _point_faults("stop_signs.position_m", signs.position_m)
    yield from _index_faults("stop_signs.controls (sign)", signs.controls[:, 0], len(signs), "stop signs")
    yield from _index_faults("stop_signs.controls (lane)", signs.controls[:, 1], len(features.lanes), "lanes")
    yield from _duplicate_faults("stop_signs.controls", signs.controls)


def _signal_faults(signals: Signals, *, num_lanes: int, num_steps: int) -> Iterator[str]:
    wrong = _length_faults("signals", signals, G=len(signals), **({"T": num_steps} if len(signals) else {}))
    yield from wrong
    if not wrong and np.any(signals.states[~signals.valid] != 0):
        yield "signals.states has values where valid is false, expected zeros"
    yield from _point_faults("signals.stop_point_m", signals.stop_point_m)
    yield from _index_faults("signals.lanes", signals.lanes, num_lanes, "lanes", unique=True)
    yield from _enum_faults("signals.states", signals.states, SignalState)


def _route_faults(route: Route, num_lanes: int) -> Iterator[str]:
    yield from _length_faults("route", route, R=len(route.lanes))
    yield from _index_faults("route.lanes", route.lanes, num_lanes, "lanes")
    steps = np.diff(route.sections, prepend=0)
    if len(route.sections) and (route.sections[0] != 0 or np.any((steps < 0) | (steps > 1))):
        yield "route.sections does not count 0, 1, 2, ... in driving order"


def _polyline_faults(name: str, polylines: Polylines, least_points: int) -> Iterator[str]:
    starts, points = polylines.starts, polylines.points_m
    if len(starts) == 0 or starts[0] != 0 or starts[-1] != len(points) or np.any(np.diff(starts) < 0):
        yield f"{name}.starts does not run from 0 to the number of points ({len(points)}) without going back"
        return
    short = int((np.diff(starts) < least_points).sum())
    if short:
        yield f"{name} has {short} polylines with fewer than {least_points} points"
    yield from _point_faults(name, points)


def _point_faults(name: str, points_m: np.ndarray) -> Iterator[str]:
    if not np.all(np.isfinite(points_m)):
        yield f"{name} has points that are not finite"
    elif len(points_m) and np.abs(points_m).max() > _MAX_EXTENT_M:
        yield f"{name} reaches beyond {_MAX_EXTENT_M:.0f} m of origin_m"


def _id_faults(name: str, ids: Any) -> Iterator[str]:
    if len(set(ids)) != len(ids):
        yield f"{name} has duplicates"
    yield from _text_faults(name, ids)


def _duplicate_faults(name: str, rows: np.ndarray) -> Iterator[str]:
    found = rows.tolist()
    if len({tuple(row) if isinstance(row, list) else row for row in found}) != len(found):
        yield f"{name} has duplicates"


def _size_faults(name: str, values: np.ndarray, most: float, *, which: str = "values") -> Iterator[str]:
    if not np.all((values > 0) & np.isfinite(values)):
        yield f"{name} has {which} that are not positive"
    elif np.any(values > most):
        yield f"{name} has {which} up to {values.max():g}, expected at most {most:g}"


def _enum_faults(name: str, values: np.ndarray, kind: type[IntEnum]) -> Iterator[str]:
    unknown = sorted(set(np.unique(values).tolist()) - {int(member) for member in kind})
    if unknown:
        yield f"{name} has {unknown}, expected members of {kind.__name__} ({min(kind)} to {max(kind)})"


def _index_faults(name: str, indices: np.ndarray, count: int, of_what: str, *, unique: bool = False) -> Iterator[str]:
    """Indices outside 0 to count - 1, and, if they must be unique, rows that occur twice."""
    if unique:
        yield from _duplicate_faults(name, indices)
    outside = np.unique(indices[(indices < 0) | (indices >= count)]).tolist()
    if outside:
        yield f"{name} points to {outside[:5]}, but there are {count} {of_what}"
