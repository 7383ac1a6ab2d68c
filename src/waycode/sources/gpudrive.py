"""Waymo scenes in the JSON format of GPUDrive and Nocturne: plain, `.gz` or `.xz`. A reference is a file path.

The format has no lane graph, which is inferred from the centrelines, and no speed limits, which stay unknown.
"""

import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from waycode.dataset.files import parse_json
from waycode.scene import GraphOrigin, Scene, SignalState, TrackType
from waycode.scene.frames import wrap_angle
from waycode.scene.lane_inference import infer_lane_graph
from waycode.sources.base import SourceError, find_files, read_all, reading
from waycode.sources.womd.raw import FEATURE_KINDS, RawFeature, RawSignal, make_map, make_signals, make_tracks
from waycode.sources.world import WorldTracks

_SUFFIXES = (".json", ".json.gz", ".json.xz")
_STEP_S = 0.1
_CURRENT_STEP = 10
_NOT_OBSERVED = -10_000.0  # written in place of samples that were not observed

_TRACK_TYPES = {"vehicle": TrackType.VEHICLE, "pedestrian": TrackType.PEDESTRIAN, "cyclist": TrackType.CYCLIST}
_FIRST_TYPE = {"lane": 0, "road_line": 5, "road_edge": 14}  # `map_element_id` of type 0 of each kind


@dataclass(frozen=True)
class GpuDriveSource:
    """Scenes of JSON files."""

    paths: str | Path | Sequence[str | Path]  # files, and folders that are searched recursively
    _: KW_ONLY
    # A file that is larger when unpacked is refused: 10 kB can hold gigabytes. Waymo's scenes have 2 to 30 MB.
    max_unpacked_mb: int = 256

    @property
    def name(self) -> str:
        return "gpudrive"

    def references(self) -> list[str]:
        found = find_files(self.paths, lambda name: name.endswith(_SUFFIXES), expected="*.json, *.json.gz or *.json.xz")
        return [str(path) for path in found]

    def read(self, reference: str) -> Scene:
        """Reads one file. Raises `SourceError` that names it."""
        with reading(reference):
            content = _load(Path(reference), max_bytes=self.max_unpacked_mb * 10**6)
            with reading("not a scene in GPUDrive's format"):
                return _scene_of(content, fallback_id=Path(reference).name.split(".json")[0])


def read(paths: str | Path | Sequence[str | Path]) -> Iterator[Scene]:
    """All scenes of JSON files or folders, one at a time."""
    return read_all(GpuDriveSource(paths))


def _load(path: Path, *, max_bytes: int) -> Any:
    openers: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
    try:
        with openers.get(path.suffix, open)(path, "rb") as file:
            text = file.read(max_bytes + 1)
        if len(text) > max_bytes:
            raise ValueError(f"it has more than max_unpacked_mb = {max_bytes // 10**6} MB when unpacked")
        return parse_json(text)
    except (OSError, EOFError, lzma.LZMAError, zlib.error, ValueError) as error:
        raise SourceError(f"{path} cannot be read ({error}): expected JSON, plain or packed as .gz or .xz") from error


def _scene_of(content: dict[str, Any], *, fallback_id: str) -> Scene:
    raw = _tracks(content)
    num_steps = raw.valid.shape[1]
    origin_m = raw.origin_m()
    features = make_map(_features(content["roads"]), origin_m)
    relations = infer_lane_graph(features.lanes.centrelines, features.lanes.types)
    lanes = replace(features.lanes, **relations._asdict(), graph_origin=GraphOrigin.INFERRED)
    return Scene(
        id=content.get("scenario_id") or fallback_id,
        source="gpudrive",
        dt_s=_STEP_S,
        current_step=_CURRENT_STEP,
        origin_m=origin_m,
        tracks=make_tracks(raw, origin_m),
        map=replace(features, lanes=lanes),
        signals=make_signals(_signals(content), lanes, num_steps=num_steps, origin_m=origin_m),
    )


def _tracks(content: dict[str, Any]) -> WorldTracks:
    objects, metadata = content["objects"], content.get("metadata", {})
    if not objects:
        raise ValueError("`objects` is empty, expected at least one road user")
    with reading("objects"):
        return _tracks_of(objects, metadata)


def _tracks_of(objects: list[dict[str, Any]], metadata: dict[str, Any]) -> WorldTracks:
    types = [_TRACK_TYPES.get(item["type"], TrackType.OTHER) for item in objects]
    position = np.array([[(point["x"], point["y"]) for point in item["position"]] for item in objects], np.float64)
    velocity = np.array([[(point["x"], point["y"]) for point in item["velocity"]] for item in objects], np.float64)
    heading = np.array([item["heading"] for item in objects], np.float64)
    samples = np.concatenate([position, velocity, heading[..., None]], axis=-1)  # [A, T, 5]
    # Coordinates near -10,000 m are possible: only the exact value, in both x and y, means "not observed".
    missing = (position == _NOT_OBSERVED).all(-1) | (velocity == _NOT_OBSERVED).all(-1) | (heading == _NOT_OBSERVED)
    given = np.array([item["valid"] for item in objects])
    if given.dtype.kind not in "biu":  # numpy would take any text for true
        raise ValueError(f"`valid` holds {given.flat[0]!r:.60}, expected true or false")
    valid = given.astype(np.bool_) & ~missing & np.isfinite(samples).all(-1)
    is_vehicle = np.array(types) == TrackType.VEHICLE
    in_degrees = headings_in_degrees(heading, velocity, seen=valid, is_vehicle=is_vehicle)
    return WorldTracks(
        ids=[str(item.get("id", number)) for number, item in enumerate(objects)],
        types=types,
        length_m=np.array([item["length"] for item in objects], np.float64),
        width_m=np.array([item["width"] for item in objects], np.float64),
        position_m=position,
        heading_rad=np.radians(heading) if in_degrees else heading,
        velocity_mps=velocity,
        valid=valid,
        to_predict=list(dict.fromkeys(index(item["track_index"]) for item in metadata.get("tracks_to_predict", []))),
        ego_index=None if metadata.get("sdc_track_index") is None else index(metadata["sdc_track_index"]),
    )


def headings_in_degrees(
    heading: Float[np.ndarray, "A T"],
    velocity_mps: Float[np.ndarray, "A T 2"],
    *,
    seen: Bool[np.ndarray, "A T"],
    is_vehicle: Bool[np.ndarray, " A"],
) -> bool:
    """Whether the headings of a file are in degrees (older files) instead of radians.

    A value above a full turn in radians must be degrees. If all are smaller, they are degrees only if these match the
    direction of motion clearly better (all vehicles then drive along +x, within 6 degrees).

    Args:
        heading: headings in an unknown unit.
        velocity_mps: velocities of the same samples.
        seen: samples that were observed.
        is_vehicle: tracks that move along their heading.
    """
    if np.any(np.abs(heading[seen]) > 2 * np.pi + 0.01):
        return True
    moving = seen & is_vehicle[:, None] & (np.hypot(velocity_mps[..., 0], velocity_mps[..., 1]) > 2.0)
    if not moving.any():
        return False
    course = np.arctan2(velocity_mps[moving, 1], velocity_mps[moving, 0])
    error_as_degrees, error_as_radians = (
        float(np.median(np.abs(wrap_angle(reading - course))))
        for reading in (np.radians(heading[moving]), heading[moving])
    )
    return error_as_degrees < 0.5 * error_as_radians


def _features(roads: list[dict[str, Any]]) -> Iterator[RawFeature]:
    """Map features; kinds that are not in `FEATURE_KINDS` are left out."""
    for number, road in enumerate(roads):
        with reading(f"roads[{number}]"):
            kind = road["type"]
            if kind not in FEATURE_KINDS:
                continue
            geometry = road["geometry"] if isinstance(road["geometry"], list) else [road["geometry"]]
            points = np.array([(point["x"], point["y"]) for point in geometry], np.float64).reshape(-1, 2)
            first = _FIRST_TYPE.get(kind)
            element = road.get("map_element_id")
            known_type = 0 if first is None or element is None else int(element) - first
            feature = RawFeature(str(road.get("id", number)), kind, known_type, points)
        yield feature


def _signals(content: dict[str, Any]) -> Iterator[RawSignal]:
    """Traffic lights by lane. A state is the number of a `SignalState` or its name, such as `arrow_stop`."""
    for lane_id, light in content.get("tl_states", {}).items():
        found = []
        with reading(f"tl_states of lane {lane_id:.60}"):
            steps = light.get("time_index", range(len(light["state"])))
            points = zip(light["x"], light["y"], strict=True)
            for step, state, point in zip(steps, light["state"], points, strict=True):
                number = state if isinstance(state, int) else SignalState[state.upper()]
                seen = point != (_NOT_OBSERVED, _NOT_OBSERVED)
                found.append(RawSignal(str(lane_id), int(step), int(number), point if seen else None))
        yield from found
