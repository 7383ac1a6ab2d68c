"""Builds the parts of a scene from raw WOMD values: what the TFRecord form and the JSON form have in common."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Float32

from waycode.scene import EdgeType, Lanes, LaneType, LineType, MapFeatures, Polylines, Signals, StopSigns, Tracks
from waycode.scene.frames import to_scene_frame, tracks_from_world
from waycode.scene.types import SignalState
from waycode.scene.validation import MAX_SPEED_MPS
from waycode.sources.base import SourceError

Kind = TypeVar("Kind", bound=IntEnum)


def find_files(
    paths: str | Path | Sequence[str | Path], accepts: Callable[[str], bool], *, expected: str
) -> list[Path]:
    """The files among the paths, and below folders those whose name is accepted, sorted."""
    given = [paths] if isinstance(paths, (str, Path)) else paths
    found: list[Path] = []
    for path in map(Path, given):
        if path.is_file():
            found.append(path)
            continue
        if not path.is_dir():
            raise SourceError(f"{path} does not exist: expected a file, or a folder with {expected} below it")
        below = sorted(file for file in path.rglob("*") if accepts(file.name) and file.is_file())
        if not below:
            raise SourceError(f"{path} holds no file that matches {expected}")
        found += below
    return found


def member_of(kind: type[Kind], value: int, *, otherwise: Kind) -> Kind:
    """The member of an enum with this value; `otherwise` if there is none."""
    return kind(value) if value in kind._value2member_map_ else otherwise


@dataclass(frozen=True, kw_only=True)
class RawTracks:
    """Road users in world coordinates; what stands where `valid` is false does not matter."""

    ids: Sequence[str]
    types: Sequence[int]  # TrackType
    length_m: Float[np.ndarray, " A"]
    width_m: Float[np.ndarray, " A"]
    position_m: Float[np.ndarray, "A T 2"]
    heading_rad: Float[np.ndarray, "A T"]
    velocity_mps: Float[np.ndarray, "A T 2"]
    valid: Bool[np.ndarray, "A T"]
    to_predict: Sequence[int]
    ego_index: int | None


def make_tracks(raw: RawTracks, origin_m: tuple[float, float]) -> Tracks:
    """Tracks in the scene frame, without those that were never observed.

    Recorded tracks now and then jump to another road user, for one step at an absurd speed: these samples are masked.
    """
    _check_indices(raw)
    observed = raw.valid & (np.hypot(raw.velocity_mps[..., 0], raw.velocity_mps[..., 1]) <= MAX_SPEED_MPS)
    kept = np.flatnonzero(observed.any(axis=1)).tolist()
    new_index = {old: new for new, old in enumerate(kept)}
    return tracks_from_world(
        [raw.ids[index] for index in kept],
        [raw.types[index] for index in kept],
        length_m=raw.length_m[kept],
        width_m=raw.width_m[kept],
        position_m=raw.position_m[kept],
        heading_rad=raw.heading_rad[kept],
        velocity_mps=raw.velocity_mps[kept],
        valid=observed[kept],
        origin_m=origin_m,
        to_predict=[new_index[index] for index in raw.to_predict if index in new_index],
        ego_index=None if raw.ego_index is None else new_index.get(raw.ego_index),
    )


def _check_indices(raw: RawTracks) -> None:
    named = [*raw.to_predict, *([] if raw.ego_index is None else [raw.ego_index])]
    outside = [index for index in named if not 0 <= index < len(raw.ids)]
    if outside:
        raise SourceError(f"the ego or a track to predict is track {outside[0]}, but there are {len(raw.ids)} tracks")


class RawFeature(NamedTuple):
    """A thing on the map in world coordinates; `type` is the LaneType, LineType or EdgeType, or 0."""

    id: str
    kind: str  # lane, road_line, road_edge, crosswalk, speed_bump, driveway or stop_sign
    type: int
    points_m: Float[np.ndarray, "p 2"]


def make_map(features: Iterable[RawFeature], origin_m: tuple[float, float]) -> MapFeatures:
    """The map in the scene frame, its lanes without a graph; polylines and polygons without extent are left out."""
    kept: dict[str, list[RawFeature]] = {}
    for feature in features:
        points = to_scene_frame(feature.points_m, origin_m)
        if feature.kind in _POLYGONS and len(points) > 1 and np.array_equal(points[0], points[-1]):
            points = points[:-1]
        least = _LEAST_POINTS[feature.kind]
        if len(points) >= least and (least == 1 or np.any(points != points[0])):
            kept.setdefault(feature.kind, []).append(feature._replace(points_m=points))

    def shapes(kind: str) -> Polylines:
        return Polylines.of([feature.points_m for feature in kept.get(kind, [])])

    lines, edges = kept.get("road_line", []), kept.get("road_edge", [])
    signs = [feature.points_m[0] for feature in kept.get("stop_sign", [])]
    return MapFeatures(
        lanes=_lanes(kept.get("lane", [])),
        road_lines=shapes("road_line"),
        road_line_types=_types(lines, LineType, LineType.UNKNOWN),
        road_edges=shapes("road_edge"),
        road_edge_types=_types(edges, EdgeType, EdgeType.UNKNOWN),
        crosswalks=shapes("crosswalk"),
        speed_bumps=shapes("speed_bump"),
        driveways=shapes("driveway"),
        stop_signs=StopSigns(position_m=np.array(signs, np.float32).reshape(-1, 2)),
    )


_POLYGONS = ("crosswalk", "speed_bump", "driveway")
_LEAST_POINTS = {"lane": 2, "road_line": 2, "road_edge": 2, "stop_sign": 1, **dict.fromkeys(_POLYGONS, 3)}
FEATURE_KINDS = tuple(_LEAST_POINTS)


def _types(features: list[RawFeature], kind: type[Kind], otherwise: Kind) -> np.ndarray:
    return np.array([member_of(kind, feature.type, otherwise=otherwise) for feature in features], np.int8)


def _lanes(features: list[RawFeature]) -> Lanes:
    count = len(features)
    return Lanes(
        ids=tuple(feature.id for feature in features),
        types=_types(features, LaneType, LaneType.UNKNOWN),
        centrelines=Polylines.of([feature.points_m for feature in features]),
        speed_limit_mps=np.zeros(count, np.float32),
        speed_limit_known=np.zeros(count, np.bool_),
        width_m=np.zeros(count, np.float32),
        width_known=np.zeros(count, np.bool_),
        in_junction=np.zeros(count, np.bool_),
    )


class RawSignal(NamedTuple):
    """The state of the light of one lane at one step; the stop point is in world coordinates."""

    lane_id: str
    step: int
    state: int  # SignalState
    stop_point_m: tuple[float, float] | None


def make_signals(
    observed: Iterable[RawSignal], lanes: Lanes, *, num_steps: int, origin_m: tuple[float, float]
) -> Signals:
    """Signals by lane, in the order of the lanes; those of lanes that are not on the map are left out."""
    index_of = {lane_id: index for index, lane_id in enumerate(lanes.ids)}
    by_lane: dict[int, list[RawSignal]] = {}
    for signal in observed:
        if signal.lane_id in index_of and 0 <= signal.step < num_steps:
            by_lane.setdefault(index_of[signal.lane_id], []).append(signal)
    signalled = sorted(by_lane)
    states = np.zeros((len(signalled), num_steps), np.int8)
    valid = np.zeros((len(signalled), num_steps), np.bool_)
    for row, lane in enumerate(signalled):
        for signal in by_lane[lane]:
            states[row, signal.step] = member_of(SignalState, signal.state, otherwise=SignalState.UNKNOWN)
            valid[row, signal.step] = True
    points = [_stop_point(by_lane, lane, lanes, origin_m) for lane in signalled]
    return Signals(
        lanes=np.array(signalled, np.int32),
        stop_point_m=np.array(points, np.float32).reshape(-1, 2),
        states=states,
        valid=valid,
    )


def _stop_point(
    by_lane: Mapping[int, list[RawSignal]], lane: int, lanes: Lanes, origin_m: tuple[float, float]
) -> Float32[np.ndarray, "2"]:
    """The first stop point given; without one, where the lane begins."""
    for signal in by_lane[lane]:
        if signal.stop_point_m is not None and np.all(np.isfinite(signal.stop_point_m)):
            return to_scene_frame(np.array(signal.stop_point_m, np.float64), origin_m)
    return lanes.centrelines[lane][0]
