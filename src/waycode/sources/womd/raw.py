"""Builds the parts of a scene from raw WOMD values, for both of its formats: TFRecords and GPUDrive's JSON."""

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float, Float32

from waycode.scene import EdgeType, Lanes, LaneType, LineType, MapFeatures, Polylines, Signals, StopSigns, Tracks
from waycode.scene.frames import to_scene_frame
from waycode.scene.types import SignalState
from waycode.scene.validation import MAX_SPEED_MPS
from waycode.sources.base import SourceError
from waycode.sources.world import WorldTracks

_Member = TypeVar("_Member", bound=IntEnum)
_POLYGONS = ("crosswalk", "speed_bump", "driveway")
_MIN_POINTS = {"lane": 2, "road_line": 2, "road_edge": 2, "stop_sign": 1, **dict.fromkeys(_POLYGONS, 3)}
FEATURE_KINDS = tuple(_MIN_POINTS)


class RawFeature(NamedTuple):
    """A map feature in world coordinates."""

    id: str
    kind: str  # one of FEATURE_KINDS
    type: int  # LaneType, LineType or EdgeType; 0 for other kinds
    points_m: Float[np.ndarray, "p 2"]  # one point for a stop sign


class RawSignal(NamedTuple):
    """State of the traffic light of one lane at one step."""

    lane_id: str
    step: int  # from 0
    state: int  # SignalState
    stop_point_m: tuple[float, float] | None  # in world coordinates


def member_of(kind: type[_Member], value: int, *, otherwise: _Member) -> _Member:
    """The member of an enum with this value; `otherwise` if there is none."""
    return kind(value) if value in kind._value2member_map_ else otherwise


def make_tracks(raw: WorldTracks, origin_m: tuple[float, float]) -> Tracks:
    """Tracks in the scene frame, without tracks that were never observed.

    Recorded tracks sometimes jump to another agent, for one step at an absurd speed. These samples are masked.
    """
    named = [*raw.to_predict, *([] if raw.ego_index is None else [raw.ego_index])]
    outside = [index for index in named if not 0 <= index < len(raw.ids)]
    if outside:
        raise SourceError(f"the ego or a track to predict is track {outside[0]}, but there are {len(raw.ids)} tracks")
    observed = raw.valid & (np.hypot(raw.velocity_mps[..., 0], raw.velocity_mps[..., 1]) <= MAX_SPEED_MPS)
    kept = np.flatnonzero(observed.any(axis=1)).tolist()
    new_index = {old: new for new, old in enumerate(kept)}
    return WorldTracks(
        ids=[raw.ids[index] for index in kept],
        types=[raw.types[index] for index in kept],
        length_m=raw.length_m[kept],
        width_m=raw.width_m[kept],
        position_m=raw.position_m[kept],
        heading_rad=raw.heading_rad[kept],
        velocity_mps=raw.velocity_mps[kept],
        valid=observed[kept],
        to_predict=[new_index[index] for index in raw.to_predict if index in new_index],
        ego_index=None if raw.ego_index is None else new_index.get(raw.ego_index),
    ).in_scene_frame(origin_m)


def make_map(features: Iterable[RawFeature], origin_m: tuple[float, float]) -> MapFeatures:
    """The map in the scene frame. Lanes have no graph yet; polylines and polygons without extent are left out."""
    kept: dict[str, list[RawFeature]] = {kind: [] for kind in FEATURE_KINDS}
    for feature in features:
        points = to_scene_frame(feature.points_m, origin_m)
        if feature.kind in _POLYGONS and len(points) > 1 and np.array_equal(points[0], points[-1]):
            points = points[:-1]
        at_least = _MIN_POINTS[feature.kind]
        if len(points) >= at_least and (at_least == 1 or np.any(points != points[0])):
            kept[feature.kind].append(feature._replace(points_m=points))

    def shapes(kind: str) -> Polylines:
        return Polylines.of([feature.points_m for feature in kept[kind]])

    def types(kind: str, enum: type[_Member], unknown: _Member) -> np.ndarray:
        return np.array([member_of(enum, feature.type, otherwise=unknown) for feature in kept[kind]], np.int8)

    count = len(kept["lane"])
    lanes = Lanes(
        ids=tuple(feature.id for feature in kept["lane"]),
        types=types("lane", LaneType, LaneType.UNKNOWN),
        centrelines=shapes("lane"),
        speed_limit_mps=np.zeros(count, np.float32),
        speed_limit_known=np.zeros(count, np.bool_),
        width_m=np.zeros(count, np.float32),
        width_known=np.zeros(count, np.bool_),
        in_junction=np.zeros(count, np.bool_),
    )
    signs = [feature.points_m[0] for feature in kept["stop_sign"]]
    return MapFeatures(
        lanes=lanes,
        road_lines=shapes("road_line"),
        road_line_types=types("road_line", LineType, LineType.UNKNOWN),
        road_edges=shapes("road_edge"),
        road_edge_types=types("road_edge", EdgeType, EdgeType.UNKNOWN),
        crosswalks=shapes("crosswalk"),
        speed_bumps=shapes("speed_bump"),
        driveways=shapes("driveway"),
        stop_signs=StopSigns(position_m=np.array(signs, np.float32).reshape(-1, 2)),
    )


def make_signals(
    observed: Iterable[RawSignal], lanes: Lanes, *, num_steps: int, origin_m: tuple[float, float]
) -> Signals:
    """Signals by lane, in the order of `lanes`; those of lanes that are not on the map are left out."""
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

    def stop_point(lane: int) -> Float32[np.ndarray, "2"]:
        """The first recorded stop point; the start of the lane if there is none."""
        for signal in by_lane[lane]:
            if signal.stop_point_m is not None and np.all(np.isfinite(signal.stop_point_m)):
                return to_scene_frame(np.array(signal.stop_point_m, np.float64), origin_m)
        return lanes.centrelines[lane][0]

    return Signals(
        lanes=np.array(signalled, np.int32),
        stop_point_m=np.array([stop_point(lane) for lane in signalled], np.float32).reshape(-1, 2),
        states=states,
        valid=valid,
    )
