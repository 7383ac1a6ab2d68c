"""Writes scenes as ScenarioNet's scenario descriptions, which MetaDrive replays: a pickle per scene, and a summary.

ScenarioNet's files are pickles. Ours hold nothing but dicts, lists, text, numbers and arrays; every array is pickled as
a call of `numpy.array` with its values, so that a reader needs to allow this one name, and every version of numpy reads
it. Waycode itself reads no pickle.

Positions are in the scene frame (`metadata["waycode"]["origin_m"]` is its place in the world), because ScenarioNet's
arrays are float32. Drivable areas and tracks that were never observed are left out, and bus lanes
become street lanes.
"""

import pickle
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from waycode.dataset.files import replace_file
from waycode.scene import LaneType, LineType, Scene, SignalState, TrackType
from waycode.scene.types import EdgeType
from waycode.sources.export_parts import file_name, lane_borders, polygons_of

FORMAT_VERSION = "1"  # of this export, part of the files' names
_PROTOCOL = 4  # Python 3.4 or newer
_HEIGHT_M = 1.5  # of all boxes: scenes have no heights
_KMH_PER_MPS, _MPH_PER_KMH = 3.6, 1 / 1.609344
_MOVED_M = 1.0  # ScenarioNet's bound between standing and moving objects
_LANES = {
    LaneType.UNKNOWN: "LANE_UNKNOWN", LaneType.FREEWAY: "LANE_FREEWAY", LaneType.BIKE: "LANE_BIKE_LANE",
    LaneType.STREET: "LANE_SURFACE_STREET", LaneType.BUS: "LANE_SURFACE_STREET",
}  # fmt: skip
_EDGES = {EdgeType.UNKNOWN: "UNKNOWN", EdgeType.BOUNDARY: "ROAD_EDGE_BOUNDARY", EdgeType.MEDIAN: "ROAD_EDGE_MEDIAN"}


class _PlainPickler(pickle.Pickler):
    """Pickles arrays as calls of `numpy.array`; the default names a private module that was moved in numpy 2."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return np.array, (value.tolist(), value.dtype.str)
        return NotImplemented


def export_scenarionet(scenes: Sequence[Scene], out: Path) -> list[Path]:
    """Writes a pickle per scene, `dataset_summary.pkl` and `dataset_mapping.pkl`; returns them in this order.

    Args:
        scenes: valid scenes.
        out: folder that exists.
    """
    paths, summary = [], {}
    for number, scene in enumerate(scenes):
        content = scenario_description(scene)
        paths.append(out / f"sd_waycode_{FORMAT_VERSION}_{file_name(scene, number)}.pkl")
        replace_file(paths[-1], _writer(content))
        summary[paths[-1].name] = _without_arrays(content["metadata"])
    for name, listed in (("summary", summary), ("mapping", {path.name: "" for path in paths})):
        paths.append(out / f"dataset_{name}.pkl")
        replace_file(paths[-1], _writer(listed))
    return paths


def _writer(content: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with path.open("wb") as file:
            _PlainPickler(file, protocol=_PROTOCOL).dump(content)

    return write


def scenario_description(scene: Scene) -> dict[str, Any]:
    """The scene as the dict that ScenarioNet calls a scenario description."""
    tracks, num_steps = scene.tracks, scene.num_steps
    seen = np.flatnonzero(tracks.valid.any(axis=1)).tolist()
    described = {tracks.ids[row]: _track(scene, row) for row in seen}
    metadata: dict[str, Any] = {
        "id": scene.id, "scenario_id": scene.id, "dataset": "waycode", "source_file": scene.source,
        "coordinate": "waymo", "metadrive_processed": False, "track_length": num_steps, "sample_rate": scene.dt_s,
        "ts": (np.arange(num_steps) * scene.dt_s).astype(np.float32), "current_time_index": scene.current_step,
        "objects_of_interest": [],
        "tracks_to_predict": {
            tracks.ids[row]: {"track_index": seen.index(row), "track_id": tracks.ids[row], "difficulty": 0,
                              "object_type": described[tracks.ids[row]]["type"]}
            for row in tracks.to_predict.tolist() if row in seen
        },
        "waycode": {"origin_m": list(scene.origin_m), "tags": list(scene.tags), "route": _route(scene)},
    }  # fmt: skip
    if tracks.ego_index in seen:
        metadata |= {"sdc_id": tracks.ids[tracks.ego_index], "sdc_track_index": seen.index(tracks.ego_index)}
    content = {
        "id": scene.id, "version": FORMAT_VERSION, "length": num_steps, "metadata": metadata, "tracks": described,
        "dynamic_map_states": _signals(scene), "map_features": _map_features(scene),
    }  # fmt: skip
    metadata |= _summaries(content)
    return content


def _track(scene: Scene, row: int) -> dict[str, Any]:
    tracks, kind = scene.tracks, TrackType(int(scene.tracks.types[row])).name
    valid = tracks.valid[row]
    return {
        "type": kind,
        "state": {
            "position": _with_height(tracks.position_m[row]),
            "heading": tracks.heading_rad[row],
            "velocity": np.stack([tracks.vx_mps[row], tracks.vy_mps[row]], axis=-1),
            "length": np.where(valid, tracks.length_m[row], np.float32(0)),
            "width": np.where(valid, tracks.width_m[row], np.float32(0)),
            "height": np.where(valid, np.float32(_HEIGHT_M), np.float32(0)),
            "valid": valid,
        },
        "metadata": {
            "type": kind, "object_id": tracks.ids[row], "track_length": scene.num_steps, "dataset": "waycode",
        },
    }  # fmt: skip


def _with_height(positions_m: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n 3"]:
    return np.pad(positions_m, ((0, 0), (0, 1)))


def _signals(scene: Scene) -> dict[str, Any]:
    """Traffic lights by the id of their lane; None where a state was not observed."""
    signals, found = scene.signals, {}
    for row, lane in enumerate(signals.lanes.tolist()):
        lane_id = scene.map.lanes.ids[lane]
        states = [
            f"LANE_STATE_{SignalState(state).name}" if observed else None
            for state, observed in zip(signals.states[row].tolist(), signals.valid[row].tolist(), strict=True)
        ]
        found[lane_id] = {
            "type": "TRAFFIC_LIGHT",
            "state": {"object_state": states},
            "lane": lane_id,
            "stop_point": _with_height(signals.stop_point_m[row][None])[0],
            "metadata": {
                "type": "TRAFFIC_LIGHT", "object_id": lane_id, "track_length": scene.num_steps, "dataset": "waycode",
            },
        }  # fmt: skip
    return found


def _map_features(scene: Scene) -> dict[str, Any]:
    """Lanes under their own ids; the other features under names that no lane has."""
    features, lanes = scene.map, scene.map.lanes
    found: dict[str, Any] = {lane_id: _lane(scene, lane) for lane, lane_id in enumerate(lanes.ids)}
    numbers: defaultdict[str, Iterator[int]] = defaultdict(count)

    def add(kind: str, feature: dict[str, Any]) -> None:
        found[next(name for number in numbers[kind] if (name := f"{kind}_{number}") not in found)] = feature

    for points_m, number in zip(features.road_lines.as_list(), features.road_line_types.tolist(), strict=True):
        name = LineType(number).name
        kind = "UNKNOWN_LINE" if name == "UNKNOWN" else f"ROAD_LINE_{name}"
        add("road_line", {"type": kind, "polyline": _with_height(points_m)})
    for points_m, number in zip(features.road_edges.as_list(), features.road_edge_types.tolist(), strict=True):
        add("road_edge", {"type": _EDGES[EdgeType(number)], "polyline": _with_height(points_m)})
    for kind, polygons in polygons_of(scene).items():
        for points_m in polygons.as_list():
            add(kind, {"type": kind.upper(), "polygon": _with_height(points_m)})
    for sign, position_m in enumerate(features.stop_signs.position_m):
        controlled = [lanes.ids[lane] for one, lane in features.stop_signs.controls.tolist() if one == sign]
        place = _with_height(position_m[None])[0]
        add("stop_sign", {"type": "STOP_SIGN", "lane": controlled, "position": place})
    return found


def _lane(scene: Scene, lane: int) -> dict[str, Any]:
    lanes = scene.map.lanes

    def related(relation: np.ndarray) -> list[str]:
        return [lanes.ids[other] for one, other in relation.tolist() if one == lane]

    content: dict[str, Any] = {
        "type": _LANES[LaneType(int(lanes.types[lane]))],
        "polyline": _with_height(lanes.centrelines[lane]),
        "interpolating": bool(lanes.in_junction[lane]),
        "entry_lanes": related(lanes.successors[:, ::-1]),
        "exit_lanes": related(lanes.successors),
        "left_neighbor": related(lanes.left_neighbours),
        "right_neighbor": related(lanes.right_neighbours),
    }
    if lanes.speed_limit_known[lane]:
        limit_kmh = float(lanes.speed_limit_mps[lane]) * _KMH_PER_MPS
        content |= {"speed_limit_kmh": limit_kmh, "speed_limit_mph": limit_kmh * _MPH_PER_KMH}
    if lanes.width_known[lane]:
        left_m, right_m = lane_borders(scene, lane)
        content["polygon"] = _with_height(np.concatenate([left_m, right_m[::-1]]).astype(np.float32))
        content["width"] = np.full((len(left_m), 2), lanes.width_m[lane] / 2, np.float32)  # to the left, to the right
    return content


def _route(scene: Scene) -> list[list[str]]:
    """The ego's route: ids of the parallel lanes of each section."""
    sections: dict[int, list[str]] = {}
    if scene.route is not None:
        for lane, section in zip(scene.route.lanes.tolist(), scene.route.sections.tolist(), strict=True):
            sections.setdefault(section, []).append(scene.map.lanes.ids[lane])
    return list(sections.values())


def _summaries(content: dict[str, Any]) -> dict[str, Any]:
    """What MetaDrive filters scenarios by: facts on each object, and numbers of objects, lights and features."""
    objects = {name: _object_summary(name, track) for name, track in content["tracks"].items()}
    moving = [one["type"] for one in objects.values() if one["moving_distance"] > _MOVED_M]
    lights = content["dynamic_map_states"].values()
    states = Counter(state for light in lights for state in light["state"]["object_state"] if state is not None)
    numbers = {
        "num_objects": len(objects),
        "object_types": sorted({one["type"] for one in objects.values()}),
        "num_objects_each_type": dict(Counter(one["type"] for one in objects.values())),
        "num_moving_objects": len(moving),
        "num_moving_objects_each_type": dict(Counter(moving)),
        "num_traffic_lights": len(lights),
        "num_traffic_light_types": sorted(states),
        "num_traffic_light_each_step": dict(states),
        "num_map_features": len(content["map_features"]),
        "map_height_diff": 0.0,
    }
    return {"object_summary": objects, "number_summary": numbers}


def _object_summary(name: str, track: dict[str, Any]) -> dict[str, Any]:
    valid = track["state"]["valid"]
    seen_m = track["state"]["position"][valid, :2]
    first = int(np.argmax(valid))
    gaps = np.flatnonzero(~valid[first:])
    return {
        "type": track["type"],
        "object_id": name,
        "track_length": len(valid),
        "moving_distance": float(np.linalg.norm(np.diff(seen_m, axis=0), axis=-1).sum()),
        "valid_length": int(valid.sum()),
        "continuous_valid_length": int(gaps[0]) if len(gaps) else len(valid) - first,  # of the first spell
    }


def _without_arrays(value: Any) -> Any:
    """Arrays as lists, as in ScenarioNet's summary files."""
    if isinstance(value, dict):
        return {key: _without_arrays(one) for key, one in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else value
