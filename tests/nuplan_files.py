"""Small files of nuPlan's schema: a map of one junction and a log of 25 s. No real file was available.

The columns and their types are those that nuPlan documents and its devkit reads; what is in them is known exactly.
No number is in both layers of lanes and lane connectors, nor in both of their groups: the devkit finds them by number
alone.
"""

import pickle
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import geopandas
import numpy as np
import pandas
import pyogrio
import shapely
from shapely.geometry import LineString, Polygon, box

CENTRE_M = np.array([664_430.0, 3_997_650.0])  # the middle of the junction, in Las Vegas
CITY_SYSTEM = "epsg:32611"
LOCATION, VERSION = "us-nv-las-vegas-strip", "9.15.1915"
REACH_M, HALF_M = 200.0, 12.0  # how far the arms reach, where the junction begins
SPEED_LIMIT_MPS = 13.4112

EGO_SPEED_MPS, EGO_START_M = 8.0, -100.0
TURN_RADIUS_M = HALF_M + 1.75
FRAME_US, NUM_FRAMES, FIRST_US = 50_000, 500, 1_630_000_000_000_000
ROUTE = "100 204 105"
# Scenarios start 3 s, which are 60 frames, before their tag.
TAGS = {
    65: ["on_intersection"],
    160: ["starting_left_turn", "near_multiple_vehicles"],
    300: ["on_intersection"],
    495: ["x"],
}
FIRST_SCENE, NUM_SCENES = 2, 6  # nuplan-devkit drops tags in the first and last two scenes of a log
CONE, CYCLIST, PEDESTRIAN, CAR = range(1, 5)


def left_turn() -> LineString:
    """From the west arm's left lane to the north arm."""
    angle = np.linspace(-np.pi / 2, 0, 30)
    return LineString(np.array([-HALF_M, HALF_M]) + TURN_RADIUS_M * np.stack([np.cos(angle), np.sin(angle)], axis=-1))


# fid: (group, index from the left, points)
LANES: Mapping[int, tuple[int, int, LineString]] = {
    1: (100, 0, LineString([(-REACH_M, -1.75), (-HALF_M, -1.75)])),
    2: (100, 1, LineString([(-REACH_M, -5.25), (-HALF_M, -5.25)])),
    3: (101, 0, LineString([(HALF_M, -1.75), (REACH_M, -1.75)])),
    4: (101, 1, LineString([(HALF_M, -5.25), (REACH_M, -5.25)])),
    5: (102, 0, LineString([(REACH_M, 1.75), (HALF_M, 1.75)])),
    6: (102, 1, LineString([(REACH_M, 5.25), (HALF_M, 5.25)])),
    7: (103, 0, LineString([(-HALF_M, 1.75), (-REACH_M, 1.75)])),
    8: (103, 1, LineString([(-HALF_M, 5.25), (-REACH_M, 5.25)])),
    9: (104, 0, LineString([(1.75, -REACH_M), (1.75, -HALF_M)])),
    10: (105, 0, LineString([(1.75, HALF_M), (1.75, REACH_M)])),
    11: (106, 0, LineString([(-1.75, REACH_M), (-1.75, HALF_M)])),
    12: (107, 0, LineString([(-1.75, -HALF_M), (-1.75, -REACH_M)])),
}
# fid: (lane it leaves, lane it leads to, group connector, points)
CONNECTORS: Mapping[int, tuple[int, int, int, LineString]] = {
    51: (1, 3, 200, LineString([(-HALF_M, -1.75), (HALF_M, -1.75)])),
    52: (2, 4, 200, LineString([(-HALF_M, -5.25), (HALF_M, -5.25)])),
    53: (5, 7, 201, LineString([(HALF_M, 1.75), (-HALF_M, 1.75)])),
    54: (6, 8, 201, LineString([(HALF_M, 5.25), (-HALF_M, 5.25)])),
    55: (9, 10, 202, LineString([(1.75, -HALF_M), (1.75, HALF_M)])),
    56: (11, 12, 203, LineString([(-1.75, HALF_M), (-1.75, -HALF_M)])),
    57: (1, 10, 204, left_turn()),
    58: (2, 12, 205, LineString([(-HALF_M, -5.25), (-4, -7), (-1.75, -HALF_M)])),
}
# fid: (type, points); 0 divider, 2 roadside, 3 virtual
BOUNDARIES: Mapping[int, tuple[int, LineString]] = {
    **{
        1000 + 10 * arm + i: (2 if abs(y) > 6 else 0, LineString([(first, y), (last, y)]))
        for arm, (first, last) in enumerate([(-REACH_M, -HALF_M), (HALF_M, REACH_M)])
        for i, y in enumerate([7.0, 3.5, 0.0, -3.5, -7.0])
    },
    **{
        1020 + 10 * arm + i: (2 if abs(x) > 3 else 0, LineString([(x, first), (x, last)]))
        for arm, (first, last) in enumerate([(-REACH_M, -HALF_M), (HALF_M, REACH_M)])
        for i, x in enumerate([-3.5, 0.0, 3.5])
    },
    1100: (3, LineString([(-HALF_M, 0), (HALF_M, 0)])),
    1101: (3, LineString([(-HALF_M, -3.5), (HALF_M, -3.5)])),
}
LANE_SIDES = {
    1: (1002, 1003), 2: (1003, 1004), 3: (1012, 1013), 4: (1013, 1014), 5: (1012, 1011), 6: (1011, 1010),
    7: (1002, 1001), 8: (1001, 1000), 9: (1021, 1022), 10: (1031, 1032), 11: (1031, 1030), 12: (1021, 1020),
}  # fmt: skip
CAR_PARK = Polygon(box(40, 7, 80, 40).exterior, [box(55, 20, 60, 25).exterior])
STOP_SIGN = box(-3.5, 12, 0, 14)


def write_map(maps_root: Path, *, without_layer: str = "", without_column: str = "") -> Path:
    """<maps_root>/<location>/<version>/map.gpkg, in degrees."""
    file = maps_root / LOCATION / VERSION / "map.gpkg"
    file.parent.mkdir(parents=True)
    pyogrio.set_gdal_config_options({"OGR_SQLITE_SYNCHRONOUS": "OFF"})  # many small layers: do not wait for the disk
    for name, (fids, shapes, columns) in _layers().items():
        if name != without_layer:
            kept = {key: values for key, values in columns.items() if key != without_column}
            _write_layer(file, name, fids, shapes, kept)
    meta = pandas.DataFrame(
        {"key": ["geographicCoordSystem", "projectedCoordSystem"], "value": ["epsg:4326", CITY_SYSTEM]}
    )
    pyogrio.write_dataframe(meta, file, layer="meta", append=True)
    return file


def _write_layer(file: Path, name: str, fids: Sequence[int], shapes: Sequence[Any], columns: dict[str, Any]) -> None:
    world = shapely.transform(np.asarray(shapes, dtype=object), lambda points: points + CENTRE_M)
    table = geopandas.GeoDataFrame({"fid": fids, **columns}, geometry=list(world), crs=CITY_SYSTEM)
    table = table.to_crs("epsg:4326")
    pyogrio.write_dataframe(
        table, file, layer=name, append=file.exists(), layer_options={"FID": "fid", "GEOMETRY_NAME": "geom"}
    )


def _layers() -> dict[str, tuple[list[int], list[Any], dict[str, Any]]]:
    lanes, connectors = list(LANES.values()), list(CONNECTORS.values())
    arms = [
        box(-REACH_M, -7, -HALF_M, 7), box(HALF_M, -7, REACH_M, 7),
        box(-3.5, -REACH_M, 3.5, -HALF_M), box(-3.5, HALF_M, 3.5, REACH_M),
    ]  # fmt: skip
    groups = sorted({lane[0] for lane in lanes})
    joints = {connector[2]: connector for connector in connectors}  # one connector of each group
    paths = [*(lane[2] for lane in lanes), *(connector[3] for connector in connectors)]
    return {
        "baseline_paths": (
            list(range(1, len(paths) + 1)),
            paths,
            {
                "path_type_fid": [0] * len(paths),
                "lane_fid": [*(float(fid) for fid in LANES), *[np.nan] * len(CONNECTORS)],
                "lane_connector_fid": [*[np.nan] * len(LANES), *(float(fid) for fid in CONNECTORS)],
            },
        ),
        "lanes_polygons": (
            list(LANES),
            [lane[2].buffer(1.75, cap_style="flat") for lane in lanes],
            {
                "lane_group_fid": [lane[0] for lane in lanes],
                "lane_fid": list(LANES),
                "lane_index": [lane[1] for lane in lanes],
                "lane_type_fid": [0] * len(lanes),
                "left_boundary_fid": [LANE_SIDES[fid][0] for fid in LANES],
                "right_boundary_fid": [LANE_SIDES[fid][1] for fid in LANES],
                "speed_limit_mps": [np.nan if fid == 12 else SPEED_LIMIT_MPS for fid in LANES],
            },
        ),
        "lane_connectors": (
            list(CONNECTORS),
            [connector[3] for connector in connectors],
            {
                "exit_lane_fid": [connector[0] for connector in connectors],
                "entry_lane_fid": [connector[1] for connector in connectors],
                "exit_lane_group_fid": [LANES[connector[0]][0] for connector in connectors],
                "entry_lane_group_fid": [LANES[connector[1]][0] for connector in connectors],
                "turn_type_fid": [0] * len(connectors),
                "lane_group_connector_fid": [connector[2] for connector in connectors],
                "intersection_fid": [1] * len(connectors),
                "traffic_light_stop_line_fids": ["2" if fid in (51, 52, 57) else "" for fid in CONNECTORS],
                "speed_limit_mps": [SPEED_LIMIT_MPS if fid == 51 else np.nan for fid in CONNECTORS],
            },
        ),
        "gen_lane_connectors_scaled_width_polygons": (
            [1],
            [CONNECTORS[51][3].buffer(1.75, cap_style="flat")],
            {"lane_connector_fid": [51], "left_boundary_fid": [1100], "right_boundary_fid": [1101]},
        ),
        "boundaries": (
            list(BOUNDARIES),
            [line for _, line in BOUNDARIES.values()],
            {"boundary_type_fid": [kind for kind, _ in BOUNDARIES.values()]},
        ),
        "stop_polygons": (
            [1, 2],
            [STOP_SIGN, box(-14, -7, -12, 0)],
            {
                "stop_polygon_type_fid": [1, 2],
                "lane_fids": ["11", "1, 2"],
                "lane_connector_fids": ["56", "51,52,57"],
            },
        ),
        "lane_groups_polygons": (groups, [_group_area(group) for group in groups], {}),
        "lane_group_connectors": (
            list(joints),
            [connector[3].buffer(1.75, cap_style="flat") for connector in joints.values()],
            {
                "from_lane_group_fid": [LANES[connector[0]][0] for connector in joints.values()],
                "to_lane_group_fid": [LANES[connector[1]][0] for connector in joints.values()],
            },
        ),
        "walkways": ([1], [box(-40, 8, -20, 10)], {}),
        "crosswalks": ([1], [box(-17, -7, -14, 7)], {"is_marked": [True]}),
        "speed_bumps": ([1], [box(60, -7, 61, 7)], {}),
        "road_segments": ([1, 2, 3, 4], arms, {"lane_group_fids": [""] * 4}),
        "intersections": ([1], [box(-HALF_M, -HALF_M, HALF_M, HALF_M)], {"intersection_type_fid": [1]}),
        "generic_drivable_areas": ([1], [box(3.5, -60, 10, -50)], {}),
        "carpark_areas": ([1], [CAR_PARK], {"heading": [0.0]}),
    }


def _group_area(group: int) -> Any:
    members = [line for other, _, line in LANES.values() if other == group]
    return shapely.union_all([line.buffer(1.75, cap_style="flat") for line in members])


TABLES = {
    "log": "token BLOB PRIMARY KEY, vehicle_name VARCHAR(64), date VARCHAR(64), timestamp INTEGER, "
    "logfile VARCHAR(64), location VARCHAR(64), map_version VARCHAR(64)",
    "lidar": "token BLOB PRIMARY KEY, log_token BLOB NOT NULL, channel VARCHAR(64), model VARCHAR(64), "
    "translation BLOB, rotation BLOB",
    "ego_pose": "token BLOB PRIMARY KEY, timestamp INTEGER, x FLOAT, y FLOAT, z FLOAT, qw FLOAT, qx FLOAT, qy FLOAT, "
    "qz FLOAT, vx FLOAT, vy FLOAT, vz FLOAT, acceleration_x FLOAT, acceleration_y FLOAT, acceleration_z FLOAT, "
    "angular_rate_x FLOAT, angular_rate_y FLOAT, angular_rate_z FLOAT, epsg INTEGER, log_token BLOB NOT NULL",
    "lidar_pc": "token BLOB PRIMARY KEY, next_token BLOB, prev_token BLOB, ego_pose_token BLOB NOT NULL, "
    "lidar_token BLOB NOT NULL, scene_token BLOB, filename VARCHAR(128), timestamp INTEGER",
    "lidar_box": "token BLOB PRIMARY KEY, lidar_pc_token BLOB NOT NULL, track_token BLOB NOT NULL, next_token BLOB, "
    "prev_token BLOB, x FLOAT, y FLOAT, z FLOAT, width FLOAT, length FLOAT, height FLOAT, vx FLOAT, vy FLOAT, "
    "vz FLOAT, yaw FLOAT, confidence FLOAT",
    "track": "token BLOB PRIMARY KEY, category_token BLOB NOT NULL, width FLOAT, length FLOAT, height FLOAT",
    "category": "token BLOB PRIMARY KEY, name VARCHAR(64), description TEXT",
    "scene": "token BLOB PRIMARY KEY, log_token BLOB NOT NULL, name TEXT, goal_ego_pose_token BLOB, roadblock_ids TEXT",
    "scenario_tag": "token BLOB PRIMARY KEY, lidar_pc_token BLOB NOT NULL, type TEXT, agent_track_token BLOB",
    "traffic_light_status": "token BLOB PRIMARY KEY, lidar_pc_token BLOB NOT NULL, lane_connector_id INTEGER, "
    "status VARCHAR(8)",
}
CATEGORIES = ("vehicle", "bicycle", "pedestrian", "traffic_cone", "barrier", "czone_sign", "generic_object")
TRACK_CATEGORIES = {CONE: "traffic_cone", CYCLIST: "bicycle", PEDESTRIAN: "pedestrian", CAR: "vehicle"}


def token(kind: int, number: int) -> bytes:
    return bytes([kind]) + number.to_bytes(7, "big")


def frame_time_us(frame: int) -> int:
    """Frames come every 50 ms, give or take a millisecond."""
    return FIRST_US + frame * FRAME_US + (0, 700, -900, 400)[frame % 4]


def ego_pose(time_s: float) -> tuple[float, float, float, float]:
    """x, y, heading and yaw rate of the rear axle: east, a quarter circle to the left, north."""
    before_m = -HALF_M - EGO_START_M
    along_m = EGO_SPEED_MPS * time_s
    arc_m = TURN_RADIUS_M * np.pi / 2
    if along_m < before_m:
        return EGO_START_M + along_m, -1.75, 0.0, 0.0
    if along_m < before_m + arc_m:
        turned = (along_m - before_m) / TURN_RADIUS_M
        x = -HALF_M + TURN_RADIUS_M * np.sin(turned)
        y = HALF_M - TURN_RADIUS_M * np.cos(turned)
        return float(x), float(y), turned, EGO_SPEED_MPS / TURN_RADIUS_M
    return 1.75, HALF_M + along_m - before_m - arc_m, np.pi / 2, 0.0


def boxes(frame: int) -> list[tuple[int, tuple[float | None, ...]]]:
    """Track and x, y, width, length, vx, vy, yaw of what is seen in a frame."""
    time_s = (frame_time_us(frame) - FIRST_US) / 1e6
    seen: list[tuple[int, tuple[float | None, ...]]] = [
        (CONE, (5.0, -9.0, 0.4, 0.4, None, None, 0.0)),
        (CAR, (90 - 6 * time_s, 5.25, 2.0, 4.8, -6.0, 0.0, np.pi)),
    ]
    if 200 <= frame < 300:
        seen.append((PEDESTRIAN, (-15.5, -7 + 1.2 * (time_s - 10), 0.7, 0.8, 0.0, 1.2, np.pi / 2)))
    if frame % 2 == 0 and frame >= 60:
        seen.append((CYCLIST, (-1.75, 80 - 4 * time_s, 0.6, 1.8, 0.0, -4.0, -np.pi / 2)))
    return seen


def lights(frame: int) -> list[tuple[int, str]]:
    """Lane connector and status; connector 99 is not on the map."""
    return [(57, "red" if frame < 200 else "green"), (51, "green"), (53, "unknown"), (99, "red")]


def write_log(file: Path, *, missing: Collection[int] = (), without_table: str = "", without_column: str = "") -> Path:
    """A log with the frames that are not `missing`; a column to leave out is named as table.column."""
    frames = [frame for frame in range(NUM_FRAMES) if frame not in missing]
    connection = sqlite3.connect(file)
    for table, rows in _tables(frames).items():
        if table != without_table:
            connection.execute(f"CREATE TABLE {table} ({TABLES[table]})")
            marks = ",".join("?" * len(rows[0]))
            connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)  # noqa: S608
    if without_column:
        connection.execute("ALTER TABLE {} DROP COLUMN {}".format(*without_column.split(".")))
    connection.commit()
    connection.close()
    return file


def _tables(frames: Sequence[int]) -> dict[str, list[tuple[Any, ...]]]:
    log, lidar = token(1, 0), token(2, 0)
    kinds = {name: token(9, i) for i, name in enumerate(CATEGORIES)}
    return {
        "log": [(log, "g1p-veh-2045", "2021-08-26", FIRST_US, "2021.08.26", "las_vegas", LOCATION)],
        "lidar": [(lidar, log, "MergedPointCloud", "m", pickle.dumps([0.0] * 3), pickle.dumps([1.0, 0.0, 0.0, 0.0]))],
        "category": [(kinds[name], name, name) for name in CATEGORIES],
        "track": [(token(8, track), kinds[name], 1.0, 1.0, 1.0) for track, name in TRACK_CATEGORIES.items()],
        "scene": [(token(5, i), log, f"scene-{i}", token(3, NUM_FRAMES - 1), ROUTE) for i in range(NUM_SCENES)],
        "ego_pose": [_ego_row(frame, log) for frame in frames],
        "lidar_pc": [
            (
                token(4, f),
                None,
                None,
                token(3, f),
                lidar,
                token(5, FIRST_SCENE + f // 250),
                f"{f}.pcd",
                frame_time_us(f),
            )
            for f in frames
        ],
        "lidar_box": [
            (token(6, frame * 10 + track), token(4, frame), token(8, track), None, None, *_box_columns(values))
            for frame in frames
            for track, values in boxes(frame)
        ],
        "scenario_tag": [
            (token(7, frame * 10 + i), token(4, frame), kind, token(8, CAR))
            for frame, tags in TAGS.items()
            if frame in frames
            for i, kind in enumerate(tags)
        ],
        "traffic_light_status": [
            (token(10, frame * 10 + i), token(4, frame), connector, status)
            for frame in frames
            for i, (connector, status) in enumerate(lights(frame))
        ],
    }


def _ego_row(frame: int, log: bytes) -> tuple[Any, ...]:
    x, y, heading, yaw_rate = ego_pose((frame_time_us(frame) - FIRST_US) / 1e6)
    turn = (np.cos(heading / 2), 0.0, 0.0, np.sin(heading / 2))
    time_us = frame_time_us(frame) + 333  # a pose's own time differs a little from its frame's
    moving = (EGO_SPEED_MPS, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, yaw_rate)
    return token(3, frame), time_us, x + CENTRE_M[0], y + CENTRE_M[1], 600.0, *turn, *moving, 32611, log


def _box_columns(values: tuple[float | None, ...]) -> tuple[Any, ...]:
    x, y, width, length, vx, vy, yaw = values
    assert x is not None
    assert y is not None
    return x + CENTRE_M[0], y + CENTRE_M[1], 600.0, width, length, 1.6, vx, vy, 0.0, yaw, 0.9
