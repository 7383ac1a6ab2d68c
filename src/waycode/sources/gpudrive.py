"""Waymo's scenes in the JSON form of GPUDrive and Nocturne: plain, `.gz` or `.xz`; a reference is a file's path.

The form leaves out the lane graph, which is inferred from the centrelines, and speed limits, which stay unknown.
"""

import gzip
import json
import lzma
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from waycode.scene import GraphOrigin, Lanes, Scene, SignalState, TrackType
from waycode.scene.frames import scene_origin, wrap_angle
from waycode.scene.lane_inference import infer_lane_graph
from waycode.sources.base import SourceError
from waycode.sources.womd.assemble import (
    FEATURE_KINDS,
    RawFeature,
    RawSignal,
    RawTracks,
    find_files,
    make_map,
    make_signals,
    make_tracks,
)

SOURCE_NAME = "gpudrive"
SUFFIXES = (".json", ".json.gz", ".json.xz")
STEP_S = 0.1
CURRENT_STEP = 10
NOT_OBSERVED = -10_000.0  # what the form writes where there was nothing to see

_TRACK_TYPES = {"vehicle": TrackType.VEHICLE, "pedestrian": TrackType.PEDESTRIAN, "cyclist": TrackType.CYCLIST}
_FIRST_TYPE = {"lane": 0, "road_line": 5, "road_edge": 14}  # `map_element_id` of type 0 of each kind


@dataclass(frozen=True)
class GpuDriveSource:
    """JSON files, or folders with such files anywhere below."""

    paths: str | Path | Sequence[str | Path]

    @property
    def name(self) -> str:
        return SOURCE_NAME

    def references(self) -> list[str]:
        found = find_files(self.paths, lambda name: name.endswith(SUFFIXES), expected="*.json, *.json.gz or *.json.xz")
        return [str(path) for path in found]

    def read(self, reference: str) -> Scene:
        """Reads one file, or raises `SourceError` that names it."""
        content = _load(Path(reference))
        try:
            return _scene_of(content, fallback_id=Path(reference).name.split(".json")[0])
        except SourceError as error:
            raise SourceError(f"{reference}: {error}") from error
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise SourceError(
                f"{reference} is not a scene in the form of GPUDrive ({type(error).__name__}: {error})"
            ) from error


def read(paths: str | Path | Sequence[str | Path]) -> Iterator[Scene]:
    """All scenes of JSON files or folders, one at a time."""
    source = GpuDriveSource(paths)
    return (source.read(reference) for reference in source.references())


def _load(path: Path) -> Any:
    unpack = {".gz": gzip.decompress, ".xz": lzma.decompress}.get(path.suffix, bytes)
    try:
        return json.loads(unpack(path.read_bytes()))
    except (OSError, EOFError, lzma.LZMAError, zlib.error, ValueError) as error:
        raise SourceError(f"{path} cannot be read ({error}): expected JSON, plain or packed as .gz or .xz") from error


def _scene_of(content: dict[str, Any], *, fallback_id: str) -> Scene:
    raw = _tracks(content)
    num_steps = raw.valid.shape[1]
    origin_m = scene_origin(raw.position_m, raw.valid)
    features = make_map(_features(content["roads"]), origin_m)
    return Scene(
        id=content.get("scenario_id") or fallback_id,
        source=SOURCE_NAME,
        dt_s=STEP_S,
        current_step=CURRENT_STEP,
        origin_m=origin_m,
        tracks=make_tracks(raw, origin_m),
        map=replace(features, lanes=_with_graph(features.lanes)),
        signals=make_signals(_signals(content), features.lanes, num_steps=num_steps, origin_m=origin_m),
    )


def _with_graph(lanes: Lanes) -> Lanes:
    relations = infer_lane_graph(lanes.centrelines, lanes.types)
    return replace(lanes, **relations._asdict(), graph_origin=GraphOrigin.INFERRED)


def _tracks(content: dict[str, Any]) -> RawTracks:
    objects = content["objects"]
    if not objects:
        raise ValueError("`objects` is empty, expected at least one road user")
    metadata = content.get("metadata", {})
    types = [_TRACK_TYPES.get(item["type"], TrackType.OTHER) for item in objects]
    position = np.array([[(point["x"], point["y"]) for point in item["position"]] for item in objects], np.float64)
    velocity = np.array([[(point["x"], point["y"]) for point in item["velocity"]] for item in objects], np.float64)
    heading = np.array([item["heading"] for item in objects], np.float64)
    samples = np.concatenate([position, velocity, heading[..., None]], axis=-1)  # [A, T, 5]
    # The map's own coordinates may be near -10,000 m as well: only the exact value, in x and in y, says "not observed".
    missing = (position == NOT_OBSERVED).all(-1) | (velocity == NOT_OBSERVED).all(-1) | (heading == NOT_OBSERVED)
    valid = np.array([item["valid"] for item in objects], np.bool_) & ~missing & np.isfinite(samples).all(-1)
    is_vehicle = np.array(types) == TrackType.VEHICLE
    in_degrees = headings_in_degrees(heading, velocity, seen=valid, is_vehicle=is_vehicle)
    return RawTracks(
        ids=[str(item.get("id", index)) for index, item in enumerate(objects)],
        types=types,
        length_m=np.array([item["length"] for item in objects], np.float64),
        width_m=np.array([item["width"] for item in objects], np.float64),
        position_m=position,
        heading_rad=np.radians(heading) if in_degrees else heading,
        velocity_mps=velocity,
        valid=valid,
        to_predict=list(dict.fromkeys(item["track_index"] for item in metadata.get("tracks_to_predict", []))),
        ego_index=metadata.get("sdc_track_index"),
    )


def headings_in_degrees(
    heading: Float[np.ndarray, "A T"],
    velocity_mps: Float[np.ndarray, "A T 2"],
    *,
    seen: Bool[np.ndarray, "A T"],
    is_vehicle: Bool[np.ndarray, " A"],
) -> bool:
    """Whether a file's headings are degrees, as old files have them, and not radians.

    More than a full turn in radians can only be degrees. Where all headings are smaller, they are degrees only if that
    fits the motion of the vehicles clearly better (all of them then drive along +x, within 6 degrees).
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
    """Everything on the map; kinds that waycode has no use for are left out."""
    for index, road in enumerate(roads):
        kind = road["type"]
        if kind not in FEATURE_KINDS:
            continue
        geometry = road["geometry"] if isinstance(road["geometry"], list) else [road["geometry"]]
        points = np.array([(point["x"], point["y"]) for point in geometry], np.float64).reshape(-1, 2)
        first = _FIRST_TYPE.get(kind)
        element = road.get("map_element_id")
        known_type = 0 if first is None or element is None else int(element) - first
        yield RawFeature(str(road.get("id", index)), kind, known_type, points)


def _signals(content: dict[str, Any]) -> Iterator[RawSignal]:
    """The lights by lane; a state is a number of WOMD's or its name, such as `arrow_stop`."""
    for lane_id, light in content.get("tl_states", {}).items():
        steps = light.get("time_index", range(len(light["state"])))
        points = zip(light["x"], light["y"], strict=True)
        for step, state, point in zip(steps, light["state"], points, strict=True):
            number = state if isinstance(state, int) else SignalState[state.upper()]
            seen = point != (NOT_OBSERVED, NOT_OBSERVED)
            yield RawSignal(str(lane_id), int(step), int(number), point if seen else None)
