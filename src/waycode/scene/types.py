"""The types of a scene: tracks of road users, the map around them, traffic lights, and optionally a route.

Axes: A tracks, T steps, L lanes, G signalled lanes, P points, N polylines, E edges of a relation, S stop signs.

All positions are float32 metres in the *scene frame*: the world frame translated (never rotated) so that
`Scene.origin_m` is at (0, 0). This keeps millimetres in float32 even where world coordinates have seven digits; the
world position of a point is `origin_m + point`. Times are in seconds; angles in radians, counter-clockwise, 0 along +x.

Every value has a validity: a sample that was not observed is zero *and* masked. References between parts (a lane's
successor, the lane of a signal) are indices; relations are arrays of pairs.
"""

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
from jaxtyping import Bool, Float32, Int8, Int32

from waycode.scene.equality import EqualByValue

if TYPE_CHECKING:
    from waycode.scene.lane_graph import LaneGraph


class WaycodeError(Exception):
    """An error that the user can fix. Its message names the given, the expected and the available values.

    The command line prints it as one sentence and exits with 2.
    """


Pairs = Int32[np.ndarray, "_ 2"]  # one row per related pair; each relation has a length of its own


class TrackType(IntEnum):
    """Kinds of road users."""

    VEHICLE = 1
    PEDESTRIAN = 2
    CYCLIST = 3
    OTHER = 4


class LaneType(IntEnum):
    UNKNOWN = 0
    FREEWAY = 1
    STREET = 2
    BIKE = 3
    BUS = 4


class LineType(IntEnum):
    """Painted road lines."""

    UNKNOWN = 0
    BROKEN_SINGLE_WHITE = 1
    SOLID_SINGLE_WHITE = 2
    SOLID_DOUBLE_WHITE = 3
    BROKEN_SINGLE_YELLOW = 4
    BROKEN_DOUBLE_YELLOW = 5
    SOLID_SINGLE_YELLOW = 6
    SOLID_DOUBLE_YELLOW = 7
    PASSING_DOUBLE_YELLOW = 8


class EdgeType(IntEnum):
    """Where the drivable road ends."""

    UNKNOWN = 0
    BOUNDARY = 1
    MEDIAN = 2


class SignalState(IntEnum):
    """States of traffic lights, numbered as in WOMD."""

    UNKNOWN = 0
    ARROW_STOP = 1
    ARROW_CAUTION = 2
    ARROW_GO = 3
    STOP = 4
    CAUTION = 5
    GO = 6
    FLASHING_STOP = 7
    FLASHING_CAUTION = 8


class GraphOrigin(IntEnum):
    """Where the lanes' successors and neighbours come from."""

    ABSENT = 0
    INFERRED = 1
    RECORDED = 2


def no_pairs() -> Pairs:
    """An empty relation."""
    return np.zeros((0, 2), np.int32)


def as_pairs(pairs: Iterable[tuple[int, int]]) -> Pairs:
    """A relation: the distinct pairs in ascending order."""
    return np.array(sorted(set(pairs)), np.int32).reshape(-1, 2)


def _empty(kind: type[np.generic], *more_axes: int) -> Callable[[], Any]:
    """Makes arrays [0, *more_axes]."""
    return lambda: np.zeros((0, *more_axes), kind)


@dataclass(frozen=True, eq=False)
class Polylines(EqualByValue):
    """N polylines of any length, concatenated; polyline i is `points_m[starts[i]:starts[i + 1]]`."""

    points_m: Float32[np.ndarray, "P 2"]  # all points, polyline after polyline
    starts: Int32[np.ndarray, " N_plus_1"]  # index of the first point of each polyline, then the number of points

    @staticmethod
    def of(polylines: Sequence[np.ndarray]) -> "Polylines":
        """Polylines from arrays [p_i, 2] of positions in the scene frame."""
        lengths = [len(polyline) for polyline in polylines]
        starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int32)
        points = np.concatenate(polylines).astype(np.float32) if polylines else np.zeros((0, 2), np.float32)
        return Polylines(points.reshape(-1, 2), starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index: SupportsIndex) -> Float32[np.ndarray, "p 2"]:
        index = operator.index(index)
        if not 0 <= index < len(self):
            raise IndexError(f"polyline {index} of {len(self)}")
        return self.points_m[self.starts[index] : self.starts[index + 1]]

    def as_list(self) -> list[Float32[np.ndarray, "p 2"]]:
        return [self[index] for index in range(len(self))]


def _no_polylines() -> Polylines:
    return Polylines.of([])


@dataclass(frozen=True, kw_only=True, eq=False)
class Tracks(EqualByValue):
    """Road users over time. Positions are the centres of bounding boxes."""

    ids: tuple[str, ...]  # unique in the scene
    types: Int8[np.ndarray, " A"]  # TrackType
    length_m: Float32[np.ndarray, " A"]  # of the bounding box
    width_m: Float32[np.ndarray, " A"]
    x_m: Float32[np.ndarray, "A T"]  # centre of the bounding box in the scene frame
    y_m: Float32[np.ndarray, "A T"]
    heading_rad: Float32[np.ndarray, "A T"]  # of the bounding box, in [-pi, pi]
    vx_mps: Float32[np.ndarray, "A T"]  # velocity in the scene frame
    vy_mps: Float32[np.ndarray, "A T"]
    valid: Bool[np.ndarray, "A T"]  # whether the sample was observed; all other arrays are 0 where not
    to_predict: Int32[np.ndarray, " R"]  # indices of the tracks whose future is of interest
    ego_index: int | None  # index of the ego's track

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def num_steps(self) -> int:
        return int(self.valid.shape[1])

    @property
    def position_m(self) -> Float32[np.ndarray, "A T 2"]:
        return np.stack([self.x_m, self.y_m], axis=-1)

    @property
    def speed_mps(self) -> Float32[np.ndarray, "A T"]:
        return np.hypot(self.vx_mps, self.vy_mps)


@dataclass(frozen=True, kw_only=True, eq=False)
class Lanes(EqualByValue):
    """Lanes: centrelines in driving direction, attributes, and the relations between lanes; see also `graph`."""

    ids: tuple[str, ...] = ()  # unique in the scene
    types: Int8[np.ndarray, " L"] = field(default_factory=_empty(np.int8))  # LaneType
    centrelines: Polylines = field(default_factory=_no_polylines)  # two points or more each
    speed_limit_mps: Float32[np.ndarray, " L"] = field(default_factory=_empty(np.float32))  # 0 where not known
    speed_limit_known: Bool[np.ndarray, " L"] = field(default_factory=_empty(np.bool_))
    width_m: Float32[np.ndarray, " L"] = field(default_factory=_empty(np.float32))  # 0 where not known
    width_known: Bool[np.ndarray, " L"] = field(default_factory=_empty(np.bool_))
    in_junction: Bool[np.ndarray, " L"] = field(default_factory=_empty(np.bool_))  # whether within a junction
    successors: Pairs = field(default_factory=no_pairs)  # (lane, lane that continues it)
    left_neighbours: Pairs = field(default_factory=no_pairs)  # (lane, lane to its left in the same direction)
    right_neighbours: Pairs = field(default_factory=no_pairs)  # (lane, lane to its right in the same direction)
    graph_origin: GraphOrigin = GraphOrigin.ABSENT  # of successors and neighbours

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def graph(self) -> "LaneGraph":
        """Adjacency, lane lookup and walks, computed on first use."""
        from waycode.scene.lane_graph import LaneGraph

        # A copy, which shares the arrays: a reference back to these lanes would keep both alive until the next full
        # garbage collection.
        return LaneGraph(replace(self))


@dataclass(frozen=True, kw_only=True, eq=False)
class StopSigns(EqualByValue):
    """Stop signs and the lanes that they control."""

    position_m: Float32[np.ndarray, "S 2"] = field(default_factory=_empty(np.float32, 2))
    controls: Pairs = field(default_factory=no_pairs)  # (stop sign, lane that it controls)

    def __len__(self) -> int:
        return len(self.position_m)


@dataclass(frozen=True, kw_only=True, eq=False)
class MapFeatures(EqualByValue):
    """The static map. Crosswalks, speed bumps, driveways and drivable areas are polygons (last point != first)."""

    lanes: Lanes = field(default_factory=Lanes)
    road_lines: Polylines = field(default_factory=_no_polylines)  # painted lines
    road_line_types: Int8[np.ndarray, " N"] = field(default_factory=_empty(np.int8))  # LineType
    road_edges: Polylines = field(default_factory=_no_polylines)  # where the drivable road ends
    road_edge_types: Int8[np.ndarray, " M"] = field(default_factory=_empty(np.int8))  # EdgeType
    crosswalks: Polylines = field(default_factory=_no_polylines)
    speed_bumps: Polylines = field(default_factory=_no_polylines)
    driveways: Polylines = field(default_factory=_no_polylines)
    drivable_areas: Polylines = field(default_factory=_no_polylines)
    stop_signs: StopSigns = field(default_factory=StopSigns)


@dataclass(frozen=True, kw_only=True, eq=False)
class Signals(EqualByValue):
    """Traffic lights, per signalled lane and step."""

    lanes: Int32[np.ndarray, " G"] = field(default_factory=_empty(np.int32))  # signalled lanes
    stop_point_m: Float32[np.ndarray, "G 2"] = field(default_factory=_empty(np.float32, 2))  # middle of the stop line
    states: Int8[np.ndarray, "G T"] = field(default_factory=_empty(np.int8, 0))  # SignalState
    valid: Bool[np.ndarray, "G T"] = field(default_factory=_empty(np.bool_, 0))  # whether observed

    def __len__(self) -> int:
        return len(self.lanes)


@dataclass(frozen=True, kw_only=True, eq=False)
class Route(EqualByValue):
    """The ego's route: sections in driving order, each a set of parallel lanes."""

    lanes: Int32[np.ndarray, " R"]  # by section
    sections: Int32[np.ndarray, " R"]  # section of each lane: 0, 1, 2, ..., never decreasing

    @staticmethod
    def of(sections: Iterable[Sequence[int]]) -> "Route | None":
        """A route from the lanes of each section; empty sections are left out. None if no lane remains."""
        kept = [section for section in sections if section]
        if not kept:
            return None
        return Route(
            lanes=np.concatenate([np.array(section, np.int32) for section in kept]),
            sections=np.repeat(np.arange(len(kept), dtype=np.int32), [len(section) for section in kept]),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Scene(EqualByValue):
    """One recorded or generated traffic scene."""

    id: str  # unique in its dataset
    source: str  # name of the source that made it
    dt_s: float  # seconds between steps
    current_step: int  # the last step of the history; the future starts after it
    origin_m: tuple[float, float]  # world position of the scene frame's (0, 0)
    tracks: Tracks
    map: MapFeatures
    signals: Signals = field(default_factory=Signals)
    route: Route | None = None  # of the ego
    tags: tuple[str, ...] = ()  # given by the source: scenario types, the network's family
    rebuild: str | None = None  # JSON from which the source can run the same world live

    @property
    def num_steps(self) -> int:
        return self.tracks.num_steps

    def validate(self) -> None:
        """Raises `InvalidScene`, which names every fault."""
        from waycode.scene.validation import validate

        validate(self)

    def __repr__(self) -> str:
        tags = f", tags {', '.join(self.tags)}" if self.tags else ""
        return (
            f"Scene {self.id!r} ({self.source}{tags}): {len(self.tracks)} road users, {len(self.map.lanes)} lanes, "
            f"{self.num_steps} steps of {self.dt_s:g} s, now {self.current_step}"
        )

    def plot(self, **options: Any) -> Any:
        """A picture as a matplotlib figure, which notebooks show; `options` are those of `plotting.draw_scene`."""
        return _plotting().draw_scene(self, **options).figure

    def _repr_png_(self) -> bytes:
        return _plotting().png_of(self.plot())


def _plotting() -> Any:
    """Pictures are drawn by a room above this one: it is looked up when one is asked for."""
    return import_module("waycode.plotting")
