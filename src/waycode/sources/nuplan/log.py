"""Reads nuPlan logs, which are sqlite files. Tokens are blobs of 8 bytes, times are microseconds."""

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from jaxtyping import Bool, Float, Int, Int64

from waycode.sources.base import SourceError, reading

NUPLAN_STEP_S = 0.1
TOLERANCE_US = 35_000  # more than the jitter of a frame, less than the 50 ms to the next frame
TAG_AFTER_START_S = 3.0  # nuplan-devkit's scenarios start this long before their tagged frame
LIDAR_CHANNEL = "MergedPointCloud"  # of the frames that the devkit uses
_LATER_AND_EARLIER_SCENES = 2  # the devkit keeps tags of scenes with as many before and after them in the log
_MAX_MISSING_STEPS = 3  # consecutive steps without a frame that a scene may have

EGO_COLUMNS = ("x", "y", "qw", "qx", "qy", "qz", "vx", "vy")
BOX_COLUMNS = ("x", "y", "yaw", "length", "width", "vx", "vy")
_TABLES: Mapping[str, tuple[str, ...]] = {
    "log": ("location", "map_version"),
    "lidar": ("token", "channel"),
    "lidar_pc": ("token", "timestamp", "ego_pose_token", "scene_token", "lidar_token"),
    "ego_pose": ("token", *EGO_COLUMNS),
    "lidar_box": ("lidar_pc_token", "track_token", *BOX_COLUMNS),
    "track": ("token", "category_token"),
    "category": ("token", "name"),
    "scene": ("token", "name", "roadblock_ids"),
    "scenario_tag": ("lidar_pc_token", "type"),
    "traffic_light_status": ("lidar_pc_token", "lane_connector_id", "status"),
}


@dataclass(frozen=True)
class OpenLog:
    """An open log."""

    file: Path
    connection: sqlite3.Connection

    def rows(self, query: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query. Raises `SourceError` that names the file."""
        try:
            return self.connection.execute(query, parameters).fetchall()
        except sqlite3.DatabaseError as error:
            raise SourceError(
                f"{self.file} cannot be read as a nuPlan log ({error}): is it a whole sqlite file?"
            ) from error

    def rows_of_frames(self, query: str, tokens: Sequence[bytes]) -> list[tuple[Any, ...]]:
        """All rows of a query that ends in "IN", for the frames with these tokens."""
        return self.rows(f"{query} ({','.join('?' * len(tokens))})", tokens)


@contextmanager
def open_log(file: Path) -> Iterator[OpenLog]:
    """Opens a log read-only and checks that it has the required tables and columns."""
    if not file.is_file():
        raise SourceError(f"{file} does not exist: expected a nuPlan log (.db)")
    with closing(sqlite3.connect(f"file:{quote(str(file.resolve()))}?mode=ro", uri=True)) as connection:
        log = OpenLog(file, connection)
        tables = {name for (name,) in log.rows("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")}
        for table, columns in _TABLES.items():
            if table not in tables:
                raise SourceError(f"{file} has no table {table}; it has {', '.join(sorted(tables)) or 'none'}")
            present = [row[1] for row in log.rows(f"PRAGMA table_info({table})")]
            missing = [column for column in columns if column not in present]
            if missing:
                raise SourceError(f"{file}: table {table} has no column {', '.join(missing)}; it has {present}")
        yield log


@dataclass(frozen=True)
class LogIndex:
    """The frames of a log, sorted by time, and their scenario tags."""

    tokens: list[bytes]  # of the frames
    times_us: Int64[np.ndarray, " n"]  # of the frames
    tags: dict[bytes, tuple[str, ...]]  # scenario types by token, for tagged frames that the devkit keeps

    def scenario_starts(self) -> dict[int, bytes]:
        """The tagged frame of each frame at which a scenario starts: as in the devkit, the first one not earlier than
        `TAG_AFTER_START_S` before the tag."""
        starts: dict[int, bytes] = {}
        for tagged, token in enumerate(self.tokens):
            if token in self.tags:
                wanted_us = self.times_us[tagged] - round(TAG_AFTER_START_S * 1e6)
                start = int(np.searchsorted(self.times_us, wanted_us))
                if self.times_us[start] - wanted_us <= 2 * TOLERANCE_US:
                    starts[start] = token
        return starts


@dataclass(frozen=True, kw_only=True)
class LogWindow:
    """The rows of a log for one scene of `num_steps` steps. Missing frames are steps without values."""

    num_steps: int
    steps: Int[np.ndarray, " n"]  # the steps that have a frame, counted from 0
    ego: Float[np.ndarray, "n 8"]  # EGO_COLUMNS of these steps
    box_steps: Int[np.ndarray, " b"]  # step of each box
    boxes: Float[np.ndarray, "b 7"]  # BOX_COLUMNS
    box_tracks: tuple[str, ...]  # track id of each box
    box_categories: tuple[str, ...]  # category of each box, such as "vehicle"
    lights: tuple[tuple[int, int, str], ...]  # step, fid of the lane connector, status
    roadblocks: tuple[int, ...]  # route of the ego, as fids
    tags: tuple[str, ...]  # scenario types
    map_names: tuple[str, ...]  # candidates for the name of the map's folder


def read_frames(log: OpenLog) -> tuple[list[bytes], Int64[np.ndarray, " n"]]:
    """Tokens and times of all frames, sorted by time."""
    frames = log.rows(
        "SELECT f.token, f.timestamp FROM lidar_pc f JOIN lidar l ON l.token = f.lidar_token WHERE l.channel = ? "
        "ORDER BY f.timestamp, f.token",
        [LIDAR_CHANNEL],
    )
    if not frames:
        raise SourceError(f"{log.file} has no frames of the channel {LIDAR_CHANNEL} in table lidar_pc")
    with reading("table lidar_pc"):
        wrong = [token for token, _ in frames if not isinstance(token, bytes)]
        if wrong:
            raise SourceError(f"a token is {wrong[0]!r:.60}, expected bytes")
        return [token for token, _ in frames], np.array([time_us for _, time_us in frames], np.int64)


def read_index(log: OpenLog) -> LogIndex:
    """Reads the frames and tags of a whole log."""
    tokens, times_us = read_frames(log)
    tags: dict[bytes, set[str]] = {}
    with reading("table scenario_tag"):
        kept = _LATER_AND_EARLIER_SCENES
        for token, kind in log.rows(
            "SELECT t.lidar_pc_token, t.type FROM scenario_tag t JOIN lidar_pc f ON f.token = t.lidar_pc_token WHERE "
            "f.scene_token IN (SELECT token FROM (SELECT token, ROW_NUMBER() OVER (ORDER BY name) AS place, COUNT(*) "
            "OVER () AS number FROM scene) WHERE place > ? AND place <= number - ?)",
            [kept, kept],
        ):
            tags.setdefault(token, set()).add(kind)
        return LogIndex(tokens, times_us, {token: tuple(sorted(kinds)) for token, kinds in tags.items()})


def window_frames(
    times_us: Int64[np.ndarray, " n"], current: Int[np.ndarray, " k"], steps: Int[np.ndarray, " T"]
) -> tuple[Int64[np.ndarray, "k T"], Bool[np.ndarray, " k"]]:
    """Finds the frames of windows around current frames.

    Args:
        times_us: times of all frames of the log, sorted.
        current: indices of the current frames.
        steps: steps of a window relative to its current frame.

    Returns:
        The index of the frame of each step, -1 where it is missing, and which windows are usable: their first and
        last steps have a frame, and at most `_MAX_MISSING_STEPS` consecutive steps have none.
    """
    wanted_us = times_us[current][:, None] + steps * round(NUPLAN_STEP_S * 1e6)
    after = np.minimum(np.searchsorted(times_us, wanted_us), len(times_us) - 1)
    before = np.maximum(after - 1, 0)
    nearer = np.abs(times_us[after] - wanted_us) < np.abs(times_us[before] - wanted_us)
    frames = np.where(nearer, after, before)
    missing = np.abs(times_us[frames] - wanted_us) > TOLERANCE_US
    run = min(_MAX_MISSING_STEPS + 1, len(steps))
    has_gap = np.lib.stride_tricks.sliding_window_view(missing, run, axis=1).all(axis=-1).any(axis=-1)
    return np.where(missing, -1, frames), ~(missing[:, 0] | missing[:, -1] | has_gap)


def read_window(log: OpenLog, token: bytes, steps: Int[np.ndarray, " T"], *, tagged: bytes) -> LogWindow:
    """Reads a window of a log.

    Args:
        log: the log.
        token: of the frame that is the current step.
        steps: of the window, relative to the current one.
        tagged: token of the frame whose tags the window gets.
    """
    step_of = _steps_of_frames(log, token, steps)
    tokens = list(step_of)
    ego = log.rows_of_frames(
        f"SELECT f.token, {_columns('e', EGO_COLUMNS)} FROM lidar_pc f JOIN ego_pose e ON e.token = f.ego_pose_token "  # noqa: S608
        "WHERE f.token IN",
        tokens,
    )
    if len(ego) != len(tokens):
        raise SourceError(f"{log.file} has {len(ego)} ego poses for the {len(tokens)} frames around {token.hex()}")
    boxes = log.rows_of_frames(
        f"SELECT b.lidar_pc_token, b.track_token, c.name, {_columns('b', BOX_COLUMNS)} FROM lidar_box b "  # noqa: S608
        "JOIN track t ON t.token = b.track_token JOIN category c ON c.token = t.category_token "
        "WHERE b.lidar_pc_token IN",
        tokens,
    )
    lights = log.rows_of_frames(
        "SELECT lidar_pc_token, lane_connector_id, status FROM traffic_light_status WHERE lidar_pc_token IN", tokens
    )
    tags = log.rows("SELECT DISTINCT type FROM scenario_tag WHERE lidar_pc_token = ?", [tagged])
    with reading("table ego_pose"):
        poses = _numbers([row[1:] for row in ego], EGO_COLUMNS)
    with reading("table lidar_box"):
        numbers = _numbers([row[3:] for row in boxes], BOX_COLUMNS)
        box_tracks = tuple(row[1].hex() for row in boxes)
    with reading("table traffic_light_status"):
        states = sorted((step_of[frame], int(connector), str(status)) for frame, connector, status in lights)
    with reading("table scene"):
        roadblocks = _roadblocks(log, token)
    return LogWindow(
        num_steps=len(steps),
        steps=np.array([step_of[row[0]] for row in ego], np.int64),
        ego=poses,
        box_steps=np.array([step_of[row[0]] for row in boxes], np.int64),
        boxes=numbers,
        box_tracks=box_tracks,
        box_categories=tuple(str(row[2]) for row in boxes),
        lights=tuple(states),
        roadblocks=roadblocks,
        tags=tuple(sorted(str(kind) for (kind,) in tags)),
        map_names=_map_names(log),
    )


def _steps_of_frames(log: OpenLog, token: bytes, steps: Int[np.ndarray, " T"]) -> dict[bytes, int]:
    """The step of each frame of a window, by token."""
    tokens, times_us = read_frames(log)
    if token not in tokens:
        raise SourceError(f"{log.file} has no frame {token.hex()}: is this reference from another log?")
    (frames,), (good,) = window_frames(times_us, np.array([tokens.index(token)]), steps)
    if not good:
        raise SourceError(
            f"{log.file} does not cover {len(steps)} steps of {NUPLAN_STEP_S} s around the frame {token.hex()}"
        )
    return {tokens[frame]: step for step, frame in enumerate(frames) if frame >= 0}


def _roadblocks(log: OpenLog, token: bytes) -> tuple[int, ...]:
    """The route of the log's scene that a frame belongs to: numbers separated by blanks or commas."""
    rows = log.rows(
        "SELECT s.roadblock_ids FROM scene s JOIN lidar_pc f ON f.scene_token = s.token WHERE f.token = ?", [token]
    )
    return tuple(int(number) for number in re.findall(r"\d+", rows[0][0] or "")) if rows else ()


def _map_names(log: OpenLog) -> tuple[str, ...]:
    """In the logs `map_version` is the name of the map's folder; `location` is the second candidate."""
    rows = log.rows("SELECT map_version, location FROM log")
    if not rows:
        raise SourceError(f"{log.file}: table log is empty, expected the name of the map in it")
    return tuple(name.removesuffix(".gpkg") for name in rows[0] if name)


def _columns(table: str, columns: Sequence[str]) -> str:
    return ", ".join(f"{table}.{column}" for column in columns)


def _numbers(rows: Sequence[Sequence[Any]], columns: Sequence[str]) -> Float[np.ndarray, "n k"]:
    """Rows as an array; missing values are NaN."""
    for row in rows:
        for column, value in zip(columns, row, strict=True):
            if not (value is None or isinstance(value, (int, float))):
                raise SourceError(f"column {column} holds {value!r:.60}, expected a number")
    return np.array(rows, np.float64).reshape(-1, len(columns))
