"""Scenes in the formats of others: WOMD, GPUDrive, nuPlan, ScenarioNet, CommonRoad.

Tests read all of them back. No format holds everything:

- `womd`: ids are numbers, so other ids become indices; lane widths, drivable areas, route and tags are left out.
- `gpudrive`: the same, and lane graph, speed limits and stop signs' lanes.
- `nuplan`: the ego becomes nuPlan's car, all scenes move to one city; ids, kinds of road lines and driveways are left
  out (see `waycode.sources.nuplan.log_export`).
- `scenarionet`: drivable areas are left out (see `waycode.sources.scenarionet_export`).
- `commonroad`: lanes with their graph, signals' last state is left out; tracks from the current step on, other map
  features are left out. Lanes of unknown width get `DEFAULT_LANE_WIDTH_M`.
"""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from waycode.dataset.files import replace_file
from waycode.scene import LaneType, Scene, SignalState, TrackType
from waycode.sources.base import SourceError
from waycode.sources.export_parts import file_name, lane_borders, polygons_of

ExportFormat = Literal["womd", "gpudrive", "nuplan", "scenarionet", "commonroad"]
_NOT_OBSERVED = -10_000.0  # GPUDrive's value for samples that were not observed
_MPS_PER_MPH = 0.44704
_TYPE_NAMES = {TrackType.VEHICLE: "vehicle", TrackType.PEDESTRIAN: "pedestrian", TrackType.CYCLIST: "cyclist"}
_ELEMENTS = {
    "lane": 0,
    "road_line": 5,
    "road_edge": 14,
    "stop_sign": 17,
    "crosswalk": 18,
    "speed_bump": 19,
    "driveway": 20,
}


def export_scenes(scenes: Sequence[Scene], out: str | Path, *, form: ExportFormat) -> list[Path]:
    """Writes scenes in another format and returns the files: one for all (womd), one per scene, or both.

    Args:
        scenes: valid scenes.
        out: folder, created if needed; files of the same names are replaced.
        form: the format.
    """
    out = Path(out)
    if not scenes:
        raise SourceError("got 0 scenes to export, expected at least one")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SourceError(f"{out} cannot be made ({error}): choose another folder") from error
    if form == "womd":
        from waycode.sources.womd.tfrecord import framed

        content = b"".join(framed(scenario_message(scene).SerializeToString()) for scene in scenes)
        path = out / "scenes.tfrecord"
        replace_file(path, lambda temporary: temporary.write_bytes(content))
        return [path]
    if form == "nuplan":
        from waycode.sources.nuplan.log_export import export_nuplan

        return export_nuplan(scenes, out)
    if form == "scenarionet":
        from waycode.sources.scenarionet_export import export_scenarionet

        return export_scenarionet(scenes, out)
    write, suffix = (_write_gpudrive, "json") if form == "gpudrive" else (_write_commonroad, "xml")
    paths = []
    for number, scene in enumerate(scenes):
        paths.append(out / f"{file_name(scene, number)}.{suffix}")
        replace_file(paths[-1], _writer(write, scene))
    return paths


def _writer(write: Callable[[Scene, Path], None], scene: Scene) -> Callable[[Path], None]:
    return lambda path: write(scene, path)


def scenario_message(scene: Scene) -> Any:
    """The scene as a `Scenario` message of WOMD."""
    from waycode.sources.womd.scenario import scenario_class

    message, tracks = scenario_class()(), scene.tracks
    message.scenario_id, message.current_time_index = scene.id, scene.current_step
    message.timestamps_seconds.extend(round(step * scene.dt_s, 6) for step in range(scene.num_steps))
    if tracks.ego_index is not None:
        message.sdc_track_index = tracks.ego_index
    for track in tracks.to_predict.tolist():
        message.tracks_to_predict.add(track_index=track)
    world_m = tracks.position_m.astype(np.float64) + np.asarray(scene.origin_m)
    for row, number in enumerate(_numbers(tracks.ids, most=2**31)):
        track = message.tracks.add(id=number, object_type=int(tracks.types[row]))
        for step in range(scene.num_steps):
            state = track.states.add(valid=bool(tracks.valid[row, step]))
            if state.valid:
                state.center_x, state.center_y = world_m[row, step].tolist()
                state.length, state.width = float(tracks.length_m[row]), float(tracks.width_m[row])
                state.heading = float(tracks.heading_rad[row, step])
                state.velocity_x, state.velocity_y = float(tracks.vx_mps[row, step]), float(tracks.vy_mps[row, step])
    lane_ids = _add_map(message, scene)
    signals = scene.signals
    stops_m = signals.stop_point_m.astype(np.float64) + np.asarray(scene.origin_m)
    for step in range(scene.num_steps):
        states = message.dynamic_map_states.add()
        for row, lane in enumerate(signals.lanes.tolist()):
            if signals.valid[row, step]:
                state = states.lane_states.add(lane=lane_ids[lane], state=int(signals.states[row, step]))
                state.stop_point.x, state.stop_point.y = stops_m[row].tolist()
    return message


def _add_map(message: Any, scene: Scene) -> list[int]:
    """Adds the map features; returns the ids of the lanes."""
    features, lanes = scene.map, scene.map.lanes
    lane_ids = _numbers(lanes.ids, most=2**62)
    next_id = max(lane_ids, default=0) + 1

    def add(points: Any, positions_m: np.ndarray) -> None:
        for x, y in (positions_m.astype(np.float64) + np.asarray(scene.origin_m)).tolist():
            points.add(x=x, y=y)

    def neighbours(relation: np.ndarray, lane: int) -> list[int]:
        return [lane_ids[other] for one, other in relation.tolist() if one == lane]

    for index, lane_id in enumerate(lane_ids):
        lane = message.map_features.add(id=lane_id).lane
        lane.type, lane.interpolating = int(lanes.types[index]), bool(lanes.in_junction[index])
        if lanes.speed_limit_known[index]:
            lane.speed_limit_mph = float(lanes.speed_limit_mps[index]) / _MPS_PER_MPH
        add(lane.polyline, lanes.centrelines[index])
        lane.exit_lanes.extend(neighbours(lanes.successors, index))
        lane.entry_lanes.extend(neighbours(lanes.successors[:, ::-1], index))
        for other in neighbours(lanes.left_neighbours, index):
            lane.left_neighbors.add(feature_id=other)
        for other in neighbours(lanes.right_neighbours, index):
            lane.right_neighbors.add(feature_id=other)
    for kind, polylines, types in (
        ("road_line", features.road_lines, features.road_line_types),
        ("road_edge", features.road_edges, features.road_edge_types),
    ):
        for points_m, number in zip(polylines.as_list(), types.tolist(), strict=True):
            line = getattr(message.map_features.add(id=next_id), kind)
            next_id, line.type = next_id + 1, number
            add(line.polyline, points_m)
    for kind, polygons in polygons_of(scene).items():
        for points_m in polygons.as_list():
            add(getattr(message.map_features.add(id=next_id), kind).polygon, points_m)
            next_id += 1
    for index, position_m in enumerate(features.stop_signs.position_m.astype(np.float64) + np.asarray(scene.origin_m)):
        sign = message.map_features.add(id=next_id).stop_sign
        next_id += 1
        sign.position.x, sign.position.y = position_m.tolist()
        sign.lane.extend(lane_ids[lane] for one, lane in features.stop_signs.controls.tolist() if one == index)
    return lane_ids


def gpudrive_content(scene: Scene) -> dict[str, Any]:
    """The scene as the JSON object of GPUDrive and Nocturne, headings in radians."""
    tracks, origin_m = scene.tracks, np.asarray(scene.origin_m)

    def points(positions_m: np.ndarray, shift_m: np.ndarray = origin_m) -> list[dict[str, float]]:
        return [{"x": x, "y": y, "z": 0.0} for x, y in (positions_m.astype(np.float64) + shift_m).tolist()]

    objects = []
    for row, number in enumerate(_numbers(tracks.ids, most=2**31)):
        valid = tracks.valid[row]
        last = int(np.flatnonzero(valid)[-1]) if valid.any() else 0
        position = np.where(valid[:, None], tracks.position_m[row] + origin_m, _NOT_OBSERVED)
        velocity = np.stack([tracks.vx_mps[row], tracks.vy_mps[row]], axis=-1)
        objects.append(
            {
                "id": number,
                "type": _TYPE_NAMES.get(TrackType(int(tracks.types[row])), "unset"),
                "position": points(position, np.zeros(2)),
                "velocity": points(np.where(valid[:, None], velocity, _NOT_OBSERVED), np.zeros(2)),
                "heading": np.where(valid, tracks.heading_rad[row], _NOT_OBSERVED).astype(float).tolist(),
                "valid": valid.tolist(),
                "length": float(tracks.length_m[row]),
                "width": float(tracks.width_m[row]),
                "height": 1.5,
                "goalPosition": points(tracks.position_m[row, last][None])[0],
                "mark_as_expert": False,
            }
        )
    roads: list[dict[str, Any]] = []

    def add(kind: str, positions_m: np.ndarray, number: int, road_id: int | None = None) -> None:
        shape = {"type": kind, "map_element_id": _ELEMENTS[kind] + number, "geometry": points(positions_m)}
        roads.append({"id": len(lane_ids) + len(roads) if road_id is None else road_id, **shape})

    lanes, lane_ids = scene.map.lanes, range(len(scene.map.lanes))  # indices: other kinds go on counting
    for lane in lane_ids:
        add("lane", lanes.centrelines[lane], int(lanes.types[lane]), road_id=lane)
    for kind, lines, types in (
        ("road_line", scene.map.road_lines, scene.map.road_line_types),
        ("road_edge", scene.map.road_edges, scene.map.road_edge_types),
    ):
        for positions_m, number in zip(lines.as_list(), types.tolist(), strict=True):
            add(kind, positions_m, number)
    for kind, polygons in polygons_of(scene).items():
        for positions_m in polygons.as_list():
            add(kind, positions_m, 0)
    for position_m in scene.map.stop_signs.position_m:
        add("stop_sign", position_m[None], 0)
    return {
        "name": scene.id,
        "scenario_id": scene.id,
        "objects": objects,
        "roads": roads,
        "tl_states": _gpudrive_signals(scene),
        "metadata": {
            "sdc_track_index": tracks.ego_index,
            "objects_of_interest": [],
            "tracks_to_predict": [{"track_index": track, "difficulty": 0} for track in tracks.to_predict.tolist()],
        },
    }


def _gpudrive_signals(scene: Scene) -> dict[str, Any]:
    signals, found = scene.signals, {}
    for row, lane in enumerate(signals.lanes.tolist()):
        steps = np.flatnonzero(signals.valid[row]).tolist()
        x, y = (signals.stop_point_m[row].astype(np.float64) + np.asarray(scene.origin_m)).tolist()
        names = [SignalState(int(signals.states[row, step])).name.lower() for step in steps]
        found[str(lane)] = {"state": names, "x": [x] * len(steps), "y": [y] * len(steps), "time_index": steps}
    return found


def _write_gpudrive(scene: Scene, path: Path) -> None:
    path.write_text(json.dumps(gpudrive_content(scene)))


def _write_commonroad(scene: Scene, path: Path) -> None:
    try:
        from commonroad.common.file_writer import CommonRoadFileWriter, OverwriteExistingFile
        from commonroad.common.util import FileFormat
        from commonroad.planning.planning_problem import PlanningProblemSet
    except (ImportError, TypeError) as error:  # a TypeError if protobuf is newer than 3.20
        raise SourceError(
            "CommonRoad's format needs commonroad-io and its protobuf 3.20: run `pip install commonroad-io` in an "
            "environment without the extra womd"
        ) from error
    writer = CommonRoadFileWriter(
        commonroad_scenario(scene), PlanningProblemSet(), author="", affiliation="", source=scene.source, tags=set(),
        file_format=FileFormat.XML,
    )  # fmt: skip
    writer.write_to_file(str(path), OverwriteExistingFile.ALWAYS)


def commonroad_scenario(scene: Scene) -> Any:
    """The scene as a `Scenario` of commonroad-io: lanelets, and obstacles from the current step on."""
    try:
        from commonroad.geometry.obstacle_shapes.rect_obstacle_shape import RectObstacleShape as Rectangle
    except ImportError:  # commonroad-io before 2026
        from commonroad.geometry.shape import Rectangle
    from commonroad.prediction.prediction import TrajectoryPrediction
    from commonroad.scenario.lanelet import Lanelet, LaneletType
    from commonroad.scenario.obstacle import DynamicObstacle, ObstacleType
    from commonroad.scenario.scenario import Scenario
    from commonroad.scenario.state import InitialState, KSState
    from commonroad.scenario.trajectory import Trajectory

    scenario, lanes, tracks = Scenario(dt=scene.dt_s), scene.map.lanes, scene.tracks
    origin_m, first = np.asarray(scene.origin_m), scene.current_step

    lanelet_types = {
        LaneType.FREEWAY: LaneletType.HIGHWAY, LaneType.STREET: LaneletType.URBAN, LaneType.BUS: LaneletType.BUS_LANE,
        LaneType.BIKE: LaneletType.BICYCLE_LANE, LaneType.UNKNOWN: LaneletType.UNKNOWN,
    }  # fmt: skip

    def ids_after(relation: np.ndarray, lane: int) -> list[int]:
        return [other + 1 for one, other in relation.tolist() if one == lane]  # ids are positive

    for lane in range(len(lanes)):
        centre_m = lanes.centrelines[lane].astype(np.float64) + origin_m
        left_m, right_m = lane_borders(scene, lane)
        left, right = ids_after(lanes.left_neighbours, lane), ids_after(lanes.right_neighbours, lane)
        scenario.add_objects(
            Lanelet(
                left_m + origin_m, centre_m, right_m + origin_m, lane + 1,
                predecessor=ids_after(lanes.successors[:, ::-1], lane), successor=ids_after(lanes.successors, lane),
                adjacent_left=left[0] if left else None, adjacent_left_same_direction=True if left else None,
                adjacent_right=right[0] if right else None, adjacent_right_same_direction=True if right else None,
                lanelet_type={lanelet_types[LaneType(int(lanes.types[lane]))]},
            )
        )  # fmt: skip
    kinds = {
        TrackType.VEHICLE: ObstacleType.CAR, TrackType.PEDESTRIAN: ObstacleType.PEDESTRIAN,
        TrackType.CYCLIST: ObstacleType.BICYCLE, TrackType.OTHER: ObstacleType.UNKNOWN,
    }  # fmt: skip
    world_m, speed_mps = tracks.position_m.astype(np.float64) + origin_m, tracks.speed_mps
    for row in np.flatnonzero(tracks.valid[:, first]).tolist():
        shape = Rectangle(length=float(tracks.length_m[row]), width=float(tracks.width_m[row]))

        def values(step: int, row: int = row) -> dict[str, Any]:
            return {
                "time_step": step - first, "position": world_m[row, step],
                "orientation": float(tracks.heading_rad[row, step]), "velocity": float(speed_mps[row, step]),
            }  # fmt: skip

        # A trajectory has no gaps: it ends where the track is first not observed.
        gaps = np.flatnonzero(~tracks.valid[row, first:])
        last = first + (int(gaps[0]) if len(gaps) else scene.num_steps - first)
        states = [KSState(**values(step), steering_angle=0.0) for step in range(first + 1, last)]
        prediction = TrajectoryPrediction(Trajectory(1, states), shape) if states else None
        start = InitialState(**values(first), acceleration=0.0, yaw_rate=0.0, slip_angle=0.0)
        kind = kinds[TrackType(int(tracks.types[row]))]
        scenario.add_objects(DynamicObstacle(len(lanes) + row + 1, kind, shape, start, prediction))
    return scenario


def _numbers(ids: Sequence[str], *, most: int) -> list[int]:
    """Ids as distinct whole numbers: themselves if all are, else their indices."""
    if all(re.fullmatch(r"\d{1,18}", one) and int(one) < most for one in ids) and len({int(one) for one in ids}) == len(
        ids
    ):
        return [int(one) for one in ids]
    return list(range(len(ids)))
