"""Writes scenes as nuPlan logs (.db) and one map, as nuplan-devkit's readers accept them.

Every scene becomes a log of its own, in nuPlan's 20 Hz: values between steps are interpolated. The ego becomes nuPlan's
car (the devkit knows no other), with its centre where it was. A log has five scenes, the middle one with all frames,
because the devkit drops tags in the first and the last two. Tags come `TAG_AFTER_START_S` after the current step, as
the devkit's scenarios start that long before them.
"""

import pickle
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from waycode.dataset.files import describe, replace_file
from waycode.scene import Scene, SignalState, TrackType
from waycode.scene.frames import rotate, wrap_angle
from waycode.scene.geometry import forward
from waycode.sources.base import SourceError
from waycode.sources.export_parts import file_name
from waycode.sources.nuplan.log import LIDAR_CHANNEL, TAG_AFTER_START_S
from waycode.sources.nuplan.map_export import (
    CITY_CENTRE_M,
    EPSG,
    EXPORTED_CITY,
    ExportedMap,
    MapLayers,
    add_map,
    write_maps,
)
from waycode.sources.nuplan.tracks import REAR_AXLE_TO_CENTRE_M

LOGS_FOLDER, MAPS_FOLDER = Path("nuplan-v1.1", "splits", "mini"), Path("maps")  # where the devkit looks for them
_LEAST_APART_M = 3000.0  # between the scenes of the city
_FIRST_US, _FRAME_S, _LOG_US = 1_630_000_000_000_000, 0.05, 10**9
_NUM_SCENES = 5
_HEIGHT_M = 1.5  # of all boxes: scenes have no heights
_CATEGORIES = {
    TrackType.VEHICLE: "vehicle",
    TrackType.PEDESTRIAN: "pedestrian",
    TrackType.CYCLIST: "bicycle",
    TrackType.OTHER: "generic_object",
}
_STATUS = {
    SignalState.STOP: "red", SignalState.ARROW_STOP: "red", SignalState.FLASHING_STOP: "red",
    SignalState.CAUTION: "yellow", SignalState.ARROW_CAUTION: "yellow", SignalState.FLASHING_CAUTION: "yellow",
    SignalState.GO: "green", SignalState.ARROW_GO: "green",
}  # fmt: skip
# nuPlan's types by mean speed; where one ends and the next begins is our choice.
_SPEED_TAGS = ((0.2, "stationary"), (5.0, "low_magnitude_speed"), (10.0, "medium_magnitude_speed"))
_FASTEST_TAG = "high_magnitude_speed"
_TABLES = {
    "log": "token BLOB PRIMARY KEY, vehicle_name VARCHAR(64), date VARCHAR(64), timestamp INTEGER, "
    "logfile VARCHAR(64), location VARCHAR(64), map_version VARCHAR(64)",
    "lidar": "token BLOB PRIMARY KEY, log_token BLOB NOT NULL, channel VARCHAR(64), model VARCHAR(64), "
    "translation BLOB, rotation BLOB",
    "ego_pose": "token BLOB PRIMARY KEY, timestamp INTEGER, x FLOAT, y FLOAT, z FLOAT, qw FLOAT, qx FLOAT, qy FLOAT, "
    "qz FLOAT, vx FLOAT, vy FLOAT, vz FLOAT, acceleration_x FLOAT, acceleration_y FLOAT, acceleration_z FLOAT, "
    "angular_rate_x FLOAT, angular_rate_y FLOAT, angular_rate_z FLOAT, epsg INTEGER, log_token BLOB NOT NULL",
    "lidar_pc": "token BLOB PRIMARY KEY, next_token BLOB, prev_token BLOB, ego_pose_token BLOB NOT NULL, "
    "lidar_token BLOB NOT NULL, scene_token BLOB NOT NULL, filename VARCHAR(128), timestamp INTEGER",
    "lidar_box": "token BLOB PRIMARY KEY, lidar_pc_token BLOB NOT NULL, track_token BLOB, next_token BLOB, "
    "prev_token BLOB, x FLOAT, y FLOAT, z FLOAT, width FLOAT, length FLOAT, height FLOAT, vx FLOAT, vy FLOAT, "
    "vz FLOAT, yaw FLOAT, confidence FLOAT",
    "track": "token BLOB PRIMARY KEY, category_token BLOB NOT NULL, width FLOAT, length FLOAT, height FLOAT",
    "category": "token BLOB PRIMARY KEY, name VARCHAR(64), description TEXT",
    "scene": "token BLOB PRIMARY KEY, log_token BLOB NOT NULL, name TEXT, goal_ego_pose_token BLOB, roadblock_ids TEXT",
    "scenario_tag": "token BLOB PRIMARY KEY, lidar_pc_token BLOB NOT NULL, type TEXT, agent_track_token BLOB NOT NULL",
    "traffic_light_status": "token BLOB PRIMARY KEY, lidar_pc_token BLOB NOT NULL, lane_connector_id INTEGER, "
    "status VARCHAR(8)",
}
_INDICES = {"lidar_box": "lidar_pc_token", "traffic_light_status": "lidar_pc_token", "lidar_pc": "timestamp"}
_KINDS = tuple(_TABLES)  # the first byte of a token is the number of its table


def export_nuplan(scenes: Sequence[Scene], root: Path) -> list[Path]:
    """Writes scenes as nuPlan logs and one map under `root`, the folder for NUPLAN_DATA_ROOT; returns logs, then map.

    Args:
        scenes: valid scenes, each with an ego, and `TAG_AFTER_START_S` or more after the current step.
        root: folder that exists.
    """
    for scene in scenes:
        _check(scene)
    extent_m = max(float(np.abs(scene.map.lanes.centrelines.points_m).max(initial=0.0)) for scene in scenes)
    apart_m = max(_LEAST_APART_M, 3 * extent_m)
    columns = int(np.ceil(np.sqrt(len(scenes))))
    layers, logs = MapLayers(), []
    for number, scene in enumerate(scenes):
        origin_m = CITY_CENTRE_M + apart_m * np.array([number % columns, number // columns])
        logs.append(_LogExport(scene, number, origin_m, add_map(layers, scene, origin_m)))
    map_file = write_maps(layers, root / MAPS_FOLDER, nowhere_m=CITY_CENTRE_M - apart_m / 2)
    (root / LOGS_FOLDER).mkdir(parents=True, exist_ok=True)
    files = []
    for log in logs:
        files.append(root / LOGS_FOLDER / f"{file_name(log.scene, log.number)}.db")
        replace_file(files[-1], log.write)
    return [*files, map_file]


def _check(scene: Scene) -> None:
    tracks, ego = scene.tracks, scene.tracks.ego_index
    if ego is None:
        raise SourceError(f"scene {scene.id!r} has no ego, expected one: a nuPlan log is what an ego recorded")
    if not len(scene.map.lanes):
        raise SourceError(f"scene {scene.id!r} has no lanes, expected at least one for nuPlan's map")
    tagged = scene.current_step + round(TAG_AFTER_START_S / scene.dt_s)
    needed = [step for step in (scene.current_step, tagged) if step >= scene.num_steps or not tracks.valid[ego, step]]
    if needed:
        raise SourceError(
            f"scene {scene.id!r} has no ego at step {needed[0]} of {scene.num_steps}, expected it at its current step "
            f"and {TAG_AFTER_START_S:g} s later, where nuPlan's scenario tag lies"
        )


@dataclass(frozen=True)
class _LogExport:
    """A scene on its way to a log."""

    scene: Scene
    number: int  # of the log
    origin_m: Float[np.ndarray, " 2"]  # of the scene frame, in world coordinates
    exported: ExportedMap

    def token(self, table: str, row: int) -> bytes:
        """Eight bytes, unique over all tables and logs of an export."""
        return bytes([_KINDS.index(table) + 1]) + self.number.to_bytes(3, "big") + row.to_bytes(4, "big")

    @cached_property
    def frames(self) -> list[tuple[int, float]]:
        """Number and place, in steps, of the frames at which the ego is known."""
        last_s = (self.scene.num_steps - 1) * self.scene.dt_s
        places = [number * _FRAME_S / self.scene.dt_s for number in range(int(last_s / _FRAME_S + 1e-6) + 1)]
        seen = self.scene.tracks.valid[self.scene.tracks.ego_index]
        return [(i, place) for i, place in enumerate(places) if all(seen[step] for step in _around(place))]

    def time_us(self, frame: int) -> int:
        return _FIRST_US + self.number * _LOG_US + round(frame * _FRAME_S * 1e6)

    def write(self, path: Path) -> None:
        """Raises `OSError` where the disk is full, as all writers of `replace_file` do."""
        try:
            self._write(path)
        except sqlite3.Error as error:
            raise OSError(describe(error)) from error

    def _write(self, path: Path) -> None:
        rows = self._rows()
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA synchronous = OFF")  # the whole file is synchronised when it gets its name
            for table, columns in _TABLES.items():
                connection.execute(f"CREATE TABLE {table} ({columns})")
                marks = ",".join("?" * (columns.count(",") + 1))
                connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows[table])  # noqa: S608
            for table, column in _INDICES.items():
                connection.execute(f"CREATE INDEX {table}_{column} ON {table} ({column})")
            connection.commit()

    def _rows(self) -> dict[str, list[tuple[Any, ...]]]:
        log, lidar, middle = self.token("log", 0), self.token("lidar", 0), self.token("scene", _NUM_SCENES // 2)
        last = self.frames[-1][0]
        blocks = " ".join(map(str, self.exported.roadblocks(self.scene.route)))
        place = (pickle.dumps([0.0] * 3), pickle.dumps([1.0, 0.0, 0.0, 0.0]))  # the devkit unpickles these columns
        frame = "lidar_pc"
        return {
            "log": [(log, "waycode", "2021-08-26", self.time_us(0), self.scene.id[:60], "las_vegas", EXPORTED_CITY)],
            "lidar": [(lidar, log, LIDAR_CHANNEL, "none", *place)],
            "category": [(self.token("category", int(kind)), name, name) for kind, name in _CATEGORIES.items()],
            "scene": [
                (self.token("scene", i), log, f"scene-{i:03d}", self.token("ego_pose", last), blocks)
                for i in range(_NUM_SCENES)
            ],
            "ego_pose": self._ego_rows(log),
            "lidar_pc": [
                (self.token(frame, i), self.token(frame, i + 1), self.token(frame, max(i, 1) - 1),
                 self.token("ego_pose", i), lidar, middle, f"{i}.pcd", self.time_us(i))
                for i, _ in self.frames
            ],
            "track": self._track_rows(),
            "lidar_box": self._box_rows(),
            "traffic_light_status": self._light_rows(),
            "scenario_tag": self._tag_rows(),
        }  # fmt: skip

    def _ego_rows(self, log: bytes) -> list[tuple[Any, ...]]:
        tracks, ego, dt_s = self.scene.tracks, self.scene.tracks.ego_index, self.scene.dt_s
        heading = np.unwrap(tracks.heading_rad[ego].astype(np.float64))
        yaw_rate = np.gradient(heading, dt_s)
        own = rotate(np.stack([tracks.vx_mps[ego], tracks.vy_mps[ego]], axis=-1).astype(np.float64), -heading)
        own[:, 1] -= yaw_rate * REAR_AXLE_TO_CENTRE_M  # turning moves the centre sideways, but not the rear axle
        axle = tracks.position_m[ego].astype(np.float64) + self.origin_m - REAR_AXLE_TO_CENTRE_M * forward(heading)
        # Only along the heading: nuPlan's simulated states have no other, so its filters would see a step at the start.
        values = np.column_stack([axle, heading, own, np.gradient(own[:, 0], dt_s), yaw_rate])
        rows: list[tuple[Any, ...]] = []
        for i, place in self.frames:
            x, y, yaw, vx, vy, ahead, turning = _between(values, place).tolist()
            turn = (float(np.cos(yaw / 2)), 0.0, 0.0, float(np.sin(yaw / 2)))
            moving = (vx, vy, 0.0, ahead, 0.0, 0.0, 0.0, 0.0, turning)
            rows.append((self.token("ego_pose", i), self.time_us(i), x, y, 0.0, *turn, *moving, EPSG, log))
        return rows

    def _others(self) -> list[int]:
        return [track for track in range(len(self.scene.tracks)) if track != self.scene.tracks.ego_index]

    def _track_rows(self) -> list[tuple[Any, ...]]:
        tracks = self.scene.tracks
        return [
            (self.token("track", i), self.token("category", int(tracks.types[i])), *self._size(i))
            for i in self._others()
        ]

    def _size(self, track: int) -> tuple[float, float, float]:
        return float(self.scene.tracks.width_m[track]), float(self.scene.tracks.length_m[track]), _HEIGHT_M

    def _box_rows(self) -> list[tuple[Any, ...]]:
        tracks = self.scene.tracks
        rows: list[tuple[Any, ...]] = []
        for track in self._others():
            heading = np.unwrap(tracks.heading_rad[track].astype(np.float64))
            place_m = tracks.position_m[track].astype(np.float64) + self.origin_m
            values = np.column_stack([place_m, tracks.vx_mps[track], tracks.vy_mps[track], heading])
            for i, place in self.frames:
                if all(tracks.valid[track, step] for step in _around(place)):
                    x, y, vx, vy, yaw = _between(values, place).tolist()
                    yaw = float(wrap_angle(np.array(yaw)))
                    token = self.token("lidar_box", i * len(tracks) + track)
                    names = (token, self.token("lidar_pc", i), self.token("track", track), None, None)
                    rows.append((*names, x, y, 0.0, *self._size(track), vx, vy, 0.0, yaw, 1.0))
        return rows

    def _light_rows(self) -> list[tuple[Any, ...]]:
        signals = self.scene.signals
        rows: list[tuple[Any, ...]] = []
        connectors = [self.exported.connectors_of(lane) for lane in signals.lanes.tolist()]
        for i, place in self.frames:
            step = int(place + 1e-6)
            for row in np.flatnonzero(signals.valid[:, step]).tolist():
                status = _STATUS.get(SignalState(int(signals.states[row, step])), "unknown")
                for fid in connectors[row]:
                    token = self.token("traffic_light_status", len(rows))
                    rows.append((token, self.token("lidar_pc", i), fid, status))
        return rows

    def _tag_rows(self) -> list[tuple[Any, ...]]:
        """The scene's own tags, and nuPlan's for the mean speed from the current step on."""
        tracks, ego = self.scene.tracks, self.scene.tracks.ego_index
        later = np.arange(self.scene.num_steps) >= self.scene.current_step
        mean_mps = float(tracks.speed_mps[ego][later & tracks.valid[ego]].mean())
        speed = next((name for most, name in _SPEED_TAGS if mean_mps < most), _FASTEST_TAG)
        at_s = self.scene.current_step * self.scene.dt_s + TAG_AFTER_START_S
        frame = self.token("lidar_pc", round(at_s / _FRAME_S))
        tags = sorted({speed, *self.scene.tags})
        return [(self.token("scenario_tag", i), frame, tag, self.token("track", 0)) for i, tag in enumerate(tags)]


def _around(place: float) -> tuple[int, int]:
    """The steps before and after a place between steps, which are the same at a step."""
    return int(np.floor(place + 1e-6)), int(np.ceil(place - 1e-6))


def _between(values: Float[np.ndarray, "T k"], place: float) -> Float[np.ndarray, " k"]:
    """Values at a place between steps."""
    before, after = _around(place)
    share = place - before if after > before else 0.0
    return np.asarray((1 - share) * values[before] + share * values[after])
