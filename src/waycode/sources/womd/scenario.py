"""WOMD's `Scenario` messages: their class, made from `scenario.proto`, and their conversion to `Scene`.

The message class is made at run time, so that no generated code ties us to a protobuf version. WOMD's enum values are
those of `waycode.scene`.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from waycode.scene import GraphOrigin, Lanes, MapFeatures, Scene, StopSigns, TrackType, as_pairs
from waycode.sources.base import SourceError
from waycode.sources.womd.raw import RawFeature, RawSignal, make_map, make_signals, make_tracks, member_of
from waycode.sources.world import WorldTracks

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

_MESSAGE = re.compile(r"message (\w+) \{([^{}]*)\}")
_FIELD = re.compile(r"(optional|repeated) (\w+) (\w+) = (\d+);")
_PACKAGE = re.compile(r"package ([\w.]+);")
_COMMENT = re.compile(r"//[^\n]*")
_MPS_PER_MPH = 0.44704


def proto_text() -> str:
    """The text of `scenario.proto`."""
    return files(__package__).joinpath("scenario.proto").read_text(encoding="utf-8")


@cache
def scenario_class() -> Any:
    """The message class `Scenario`, in its own descriptor pool: Waymo's package may be loaded as well."""
    try:
        from google.protobuf.descriptor_pool import DescriptorPool
        from google.protobuf.message_factory import GetMessageClass
    except ImportError as error:
        raise SourceError("reading WOMD needs protobuf: run `pip install 'waycode[womd]'`") from error
    descriptor = file_descriptor(proto_text())
    pool = DescriptorPool()
    pool.Add(descriptor)
    return GetMessageClass(pool.FindMessageTypeByName(f"{descriptor.package}.Scenario"))


def file_descriptor(text: str) -> "FileDescriptorProto":
    """Parses the part of the proto2 language that `scenario.proto` uses: flat messages of plain fields."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

    text = _COMMENT.sub("", text)
    package = _PACKAGE.findall(text)[0]
    descriptor = FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto2")
    for message_name, body in _MESSAGE.findall(text):
        message = descriptor.message_type.add(name=message_name)
        for label, kind, name, number in _FIELD.findall(body):
            field = message.field.add(name=name, number=int(number))
            field.label = FieldDescriptorProto.Label.Value(f"LABEL_{label.upper()}")
            scalar = f"TYPE_{kind.upper()}"
            if scalar in FieldDescriptorProto.Type.keys():  # noqa: SIM118 (an enum wrapper, not a dict)
                field.type = FieldDescriptorProto.Type.Value(scalar)
            else:
                field.type = FieldDescriptorProto.TYPE_MESSAGE
                field.type_name = f".{package}.{kind}"
    return descriptor


def parse_scenario(record: bytes) -> Any:
    """Parses the payload of a record. Raises `SourceError` if it is not a `Scenario`."""
    message_class = scenario_class()
    from google.protobuf.message import DecodeError

    try:
        scenario = message_class.FromString(record)
        complaint = "" if scenario.tracks and scenario.timestamps_seconds else "it has no tracks or no time steps"
    except DecodeError as error:
        complaint = str(error)
    if complaint:
        raise SourceError(
            f"not a WOMD Scenario ({complaint}); the tf.Example form of WOMD is not read, "
            "take the files of its `scenario` folder"
        )
    return scenario


def scene_of(scenario: Any, *, source_name: str) -> Scene:
    """Converts a `Scenario` message. Raises `SourceError` if its parts are inconsistent."""
    num_steps = len(scenario.timestamps_seconds)
    raw = _tracks(scenario, num_steps)
    origin_m = raw.origin_m()
    features = make_map(_features(scenario), origin_m)
    return Scene(
        id=scenario.scenario_id,
        source=source_name,
        dt_s=_step_s(scenario.timestamps_seconds),
        current_step=scenario.current_time_index,
        origin_m=origin_m,
        tracks=make_tracks(raw, origin_m),
        map=_with_graph(features, scenario),
        signals=make_signals(_signals(scenario), features.lanes, num_steps=num_steps, origin_m=origin_m),
    )


def _step_s(timestamps_s: Iterable[float]) -> float:
    """The nominal time between steps; the recorded times jitter by about 10 microseconds."""
    steps = np.diff(np.fromiter(timestamps_s, np.float64))
    return round(float(np.median(steps)), 3) if len(steps) else 0.1


def _tracks(scenario: Any, num_steps: int) -> WorldTracks:
    for track in scenario.tracks:
        if len(track.states) != num_steps:
            raise SourceError(f"track {track.id} has {len(track.states)} states, expected {num_steps}")
    names = ("center_x", "center_y", "length", "width", "heading", "velocity_x", "velocity_y", "valid")
    x, y, length, width, heading, vx, vy, valid = (
        np.array([[getattr(state, name) for state in track.states] for track in scenario.tracks]) for name in names
    )
    valid = valid & np.all(np.isfinite([x, y, heading, vx, vy]), axis=0)
    return WorldTracks(
        ids=[str(track.id) for track in scenario.tracks],
        types=[member_of(TrackType, track.object_type, otherwise=TrackType.OTHER) for track in scenario.tracks],
        length_m=_median(length, valid),
        width_m=_median(width, valid),
        position_m=np.stack([x, y], axis=-1),
        heading_rad=heading,
        velocity_mps=np.stack([vx, vy], axis=-1),
        valid=valid,
        to_predict=list(dict.fromkeys(required.track_index for required in scenario.tracks_to_predict)),
        ego_index=scenario.sdc_track_index if scenario.HasField("sdc_track_index") else None,
    )


def _median(values: Float[np.ndarray, "A T"], valid: np.ndarray) -> Float[np.ndarray, " A"]:
    """The median of each track's observed values; 0 for a track that was never observed."""
    return np.array([np.median(row[seen]) if seen.any() else 0.0 for row, seen in zip(values, valid, strict=True)])


def _features(scenario: Any) -> Iterator[RawFeature]:
    for feature in scenario.map_features:
        for kind in ("lane", "road_line", "road_edge"):
            if feature.HasField(kind):
                shape = getattr(feature, kind)
                yield RawFeature(str(feature.id), kind, shape.type, _points(shape.polyline))
        for kind in ("crosswalk", "speed_bump", "driveway"):
            if feature.HasField(kind):
                yield RawFeature(str(feature.id), kind, 0, _points(getattr(feature, kind).polygon))
        if feature.HasField("stop_sign"):
            yield RawFeature(str(feature.id), "stop_sign", 0, _points([feature.stop_sign.position]))


def _points(points: Iterable[Any]) -> Float[np.ndarray, "p 2"]:
    return np.array([(point.x, point.y) for point in points], np.float64).reshape(-1, 2)


def _with_graph(features: MapFeatures, scenario: Any) -> MapFeatures:
    """Adds the recorded lane graph, speed limits and stop sign controls; lanes that were left out are ignored."""
    index_of = {lane_id: index for index, lane_id in enumerate(features.lanes.ids)}
    raw_lanes = [item for item in scenario.map_features if item.HasField("lane") and str(item.id) in index_of]
    signs = [item.stop_sign for item in scenario.map_features if item.HasField("stop_sign")]
    controls = as_pairs(
        (sign, index_of[str(lane)]) for sign, raw in enumerate(signs) for lane in raw.lane if str(lane) in index_of
    )
    return replace(
        features,
        lanes=_recorded_lanes(features.lanes, [item.lane for item in raw_lanes], index_of),
        stop_signs=StopSigns(position_m=features.stop_signs.position_m, controls=controls),
    )


def _recorded_lanes(lanes: Lanes, raw_lanes: list[Any], index_of: dict[str, int]) -> Lanes:
    successors, left, right = set(), set(), set()
    for index, raw in enumerate(raw_lanes):
        successors |= {(index, after) for after in _known(raw.exit_lanes, index_of)}
        successors |= {(before, index) for before in _known(raw.entry_lanes, index_of)}
        left |= {(index, other) for other in _known((item.feature_id for item in raw.left_neighbors), index_of)}
        right |= {(index, other) for other in _known((item.feature_id for item in raw.right_neighbors), index_of)}
    limit_mph = np.array([max(raw.speed_limit_mph, 0.0) for raw in raw_lanes])
    return replace(
        lanes,
        speed_limit_mps=(limit_mph * _MPS_PER_MPH).astype(np.float32),
        speed_limit_known=limit_mph > 0,
        in_junction=np.array([raw.interpolating for raw in raw_lanes], np.bool_),
        successors=as_pairs(successors),
        left_neighbours=as_pairs(left),
        right_neighbours=as_pairs(right),
        graph_origin=GraphOrigin.RECORDED,
    )


def _known(lane_ids: Iterable[int], index_of: dict[str, int]) -> list[int]:
    return [index_of[str(lane_id)] for lane_id in lane_ids if str(lane_id) in index_of]


def _signals(scenario: Any) -> Iterator[RawSignal]:
    for step, states in enumerate(scenario.dynamic_map_states):
        for state in states.lane_states:
            point = (state.stop_point.x, state.stop_point.y) if state.HasField("stop_point") else None
            yield RawSignal(str(state.lane), step, state.state, point)
