"""A road network in SUMO's "plain XML" form: nodes, edges with their lanes, and connections between lanes.

Lanes are counted from the right: sidewalk (if any), bicycle lane (if any), then motor lanes. Traffic drives on the
right. The `shape_m` of an edge is its left boundary.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, StrEnum, auto
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from waycode.scene.frames import rotate, wrap_angle
from waycode.scene.geometry import arclengths, directions, interpolate

_MAX_LATERAL_MPS2 = 2.2  # lateral acceleration at the speed limit of a curve
_TAPER_M = 40.0  # length on which a median grows to its full width
_UTURN_RAD, _STRAIGHT_RAD = np.radians(150), np.radians(42)  # larger heading changes are U-turns, smaller ones straight
POINT_SPACING_M = 2.0  # between the points of generated lines
LinePoints = Float[np.ndarray, "_ 2"]  # "_": lines of one call may have different numbers of points


class VehicleClass(StrEnum):
    """SUMO's classes of road users, by which lanes are restricted."""

    PASSENGER = "passenger"
    TRUCK = "truck"
    BUS = "bus"
    MOTORCYCLE = "motorcycle"
    BICYCLE = "bicycle"
    PEDESTRIAN = "pedestrian"


MOTOR_CLASSES = frozenset({VehicleClass.PASSENGER, VehicleClass.TRUCK, VehicleClass.BUS, VehicleClass.MOTORCYCLE})


class NodeType(StrEnum):
    """SUMO's types of junctions."""

    PRIORITY = "priority"
    PRIORITY_STOP = "priority_stop"  # the roads of lower priority stop
    ALL_WAY_STOP = "allway_stop"
    SIGNALS = "traffic_light"
    DEAD_END = "dead_end"


@dataclass(frozen=True, kw_only=True)
class Node:
    """A junction, or a point where an edge ends."""

    id: str
    position_m: tuple[float, float]  # x, y
    type: NodeType = NodeType.PRIORITY
    radius_m: float | None = None  # of the kerb at the corners


@dataclass(frozen=True, kw_only=True)
class Lane:
    """A lane of an edge and the classes that may use it."""

    width_m: float
    allowed: frozenset[VehicleClass]

    @property
    def is_for_motors(self) -> bool:
        return VehicleClass.PASSENGER in self.allowed

    @property
    def is_bike_lane(self) -> bool:
        return VehicleClass.BICYCLE in self.allowed and not self.is_for_motors

    @property
    def is_sidewalk(self) -> bool:
        return self.allowed == {VehicleClass.PEDESTRIAN}


@dataclass(frozen=True, kw_only=True)
class Edge:
    """One direction of a road."""

    id: str
    start: str  # node
    end: str  # node
    lanes: tuple[Lane, ...]  # from the right
    speed_mps: float  # limit
    shape_m: LinePoints  # left boundary
    priority: int = 1  # higher goes first at priority junctions

    @property
    def has_sidewalk(self) -> bool:
        return any(lane.is_sidewalk for lane in self.lanes)

    @property
    def motor_lanes(self) -> tuple[int, ...]:
        """Indices of the lanes that cars may use, from the right."""
        return tuple(index for index, lane in enumerate(self.lanes) if lane.is_for_motors)

    @property
    def bike_lane(self) -> int | None:
        """Index of the lane reserved for bicycles."""
        return next((index for index, lane in enumerate(self.lanes) if lane.is_bike_lane), None)


class Connection(NamedTuple):
    """A link from a lane to a lane across the node between their edges."""

    from_edge: str
    from_lane: int  # index in the edge
    to_edge: str
    to_lane: int


@dataclass(frozen=True, kw_only=True)
class SignalTiming:
    """Timing from which netconvert builds the programs of all traffic lights."""

    cycle_s: int  # duration of a whole cycle
    yellow_s: int  # duration of yellow
    left_green_s: int  # duration of the green phase for left turns


@dataclass(frozen=True, kw_only=True)
class PlainNetwork:
    """The input of netconvert. Edges without connections end the network."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    connections: tuple[Connection, ...]
    signal_timing: SignalTiming


class _Turn(Enum):
    RIGHT = auto()
    STRAIGHT = auto()
    LEFT = auto()


@dataclass(frozen=True, kw_only=True)
class RoadProfile:
    """Cross-section of one direction of a road."""

    num_lanes: int  # motor lanes
    lane_width_m: float
    speed_mps: float  # limit, lower in tight curves
    bike_lane_m: float = 0.0  # width; 0: no bicycle lane
    sidewalk_m: float = 0.0  # width; 0: no sidewalk
    priority: int = 1
    open_to_bicycles: bool = True  # whether bicycles may use the motor lanes where there is no bicycle lane

    def lanes(self, extra: int = 0) -> tuple[Lane, ...]:
        """Lanes from the right, with `extra` motor lanes added on the left."""
        shares_lanes = self.open_to_bicycles and not self.bike_lane_m
        motors = MOTOR_CLASSES | {VehicleClass.BICYCLE} if shares_lanes else MOTOR_CLASSES
        sidewalk = Lane(width_m=self.sidewalk_m, allowed=frozenset({VehicleClass.PEDESTRIAN}))
        bikes = Lane(width_m=self.bike_lane_m, allowed=frozenset({VehicleClass.BICYCLE}))
        lane = Lane(width_m=self.lane_width_m, allowed=motors)
        sides = [side for side in (sidewalk, bikes) if side.width_m > 0]
        return (*sides, *[lane] * (self.num_lanes + extra))


class NetworkBuilder:
    """Builds a plain network: add nodes and roads, connect the junctions, then `build`."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._edges: dict[str, Edge] = {}
        self._connections: set[Connection] = set()
        self.forbidden_turns: frozenset[tuple[str, str]] = frozenset()  # (from edge, to edge) of all `connect` calls

    def add_node(
        self,
        name: str,
        position_m: Float[np.ndarray, "2"],
        *,
        kind: NodeType = NodeType.PRIORITY,
        radius_m: float | None = None,
    ) -> None:
        """Adds a junction or an end of the network; `radius_m` is that of the kerb at the corners."""
        x_m, y_m = position_m.tolist()
        self._nodes[name] = Node(id=name, position_m=(x_m, y_m), type=kind, radius_m=radius_m)

    def add_edge(
        self, name: str, boundary_m: LinePoints, *, start: str, end: str, profile: RoadProfile, extra_lanes: int = 0
    ) -> None:
        """Adds one direction of a road. Its speed limit is lowered to what its curves allow.

        Args:
            name: id of the edge.
            boundary_m: its left boundary.
            start: node at which it begins.
            end: node at which it ends.
            profile: cross-section.
            extra_lanes: motor lanes to add on the left.
        """
        lanes = profile.lanes(extra_lanes)
        width_m = sum(lane.width_m for lane in lanes)
        speed_mps = min(profile.speed_mps, _curve_speed_mps(boundary_m, right_m=width_m))
        self._edges[name] = Edge(
            id=name, start=start, end=end, lanes=lanes, speed_mps=speed_mps, shape_m=boundary_m,
            priority=profile.priority,
        )  # fmt: skip

    def add_road(
        self,
        start: str,
        end: str,
        *,
        line_m: LinePoints,
        profile: RoadProfile,
        start_pocket_m: float = 0.0,
        end_pocket_m: float = 0.0,
    ) -> None:
        """Adds both directions of a road, as the edges `road_name(start, end)` and the reverse.

        A pocket is a lane for left turns before a junction. It has a separate edge with an additional lane, offset so
        that the other lanes continue straight; vehicles enter it by a lane change. Its width comes from a median
        between the directions. A road with a single pocket tapers to it.

        Args:
            start: first node.
            end: last node.
            line_m: centreline of the road from start to end.
            profile: cross-section of each direction.
            start_pocket_m: length of the pocket at the start; 0 for none.
            end_pocket_m: length of the pocket at the end; 0 for none.
        """
        half_m = profile.lane_width_m / 2 * _median_share(line_m, start_pocket_m, end_pocket_m)
        self._add_direction(start, end, offset_line(line_m, -half_m), profile, end_pocket_m)
        self._add_direction(end, start, offset_line(line_m, half_m)[::-1], profile, start_pocket_m)

    def _add_direction(
        self, start: str, end: str, boundary_m: LinePoints, profile: RoadProfile, pocket_m: float
    ) -> None:
        name = road_name(start, end)
        if pocket_m == 0:
            self.add_edge(name, boundary_m, start=start, end=end, profile=profile)
            return
        at_m = arclengths(boundary_m)
        before = at_m < at_m[-1] - pocket_m
        split_m = interpolate(boundary_m, at_m[-1:] - pocket_m)
        split, pocket = f"{name}_split", f"{name}_pocket"
        self.add_node(split, split_m[0], radius_m=1.5)
        self.add_edge(name, np.concatenate([boundary_m[before], split_m]), start=start, end=split, profile=profile)
        rest_m = offset_line(np.concatenate([split_m, boundary_m[~before]]), profile.lane_width_m)
        self.add_edge(pocket, rest_m, start=split, end=end, profile=profile, extra_lanes=1)
        self.link(name, pocket)

    def link(self, before: str, after: str, *, shift: int = 0) -> None:
        """Connects lane i of an edge with lane i + shift of the next, where both exist. Sidewalks are not counted."""
        here = [index for index, lane in enumerate(self._edges[before].lanes) if not lane.is_sidewalk]
        there = [index for index, lane in enumerate(self._edges[after].lanes) if not lane.is_sidewalk]
        for number, lane in enumerate(here):
            if 0 <= number + shift < len(there):
                self._connections.add(Connection(before, lane, after, there[number + shift]))

    def connect(self, node: str, *, forbidden: frozenset[tuple[str, str]] = frozenset()) -> None:
        """Connects all edges that meet at a node, except U-turns and `forbidden` turns (from edge, to edge)."""
        self.forbidden_turns |= forbidden
        for edge in [edge for edge in self._edges.values() if edge.end == node]:
            targets: dict[_Turn, Edge] = {}
            for target in [target for target in self._edges.values() if target.start == node]:
                turn = _turn_between(edge, target)
                if turn is not None and (edge.id, target.id) not in forbidden:
                    targets[turn] = target
            self._connect_motor_lanes(edge, targets)
            self._connect_bicycles(edge, targets)

    def _connect_motor_lanes(self, edge: Edge, targets: Mapping[_Turn, Edge]) -> None:
        lanes = edge.motor_lanes
        right, left = lanes[:1], lanes[-1:]
        if _Turn.STRAIGHT not in targets and len(lanes) > 1:  # at the end of a road all lanes turn
            if _Turn.LEFT not in targets:
                right = lanes
            elif _Turn.RIGHT not in targets:
                left = lanes
            else:
                right, left = lanes[: len(lanes) // 2], lanes[len(lanes) // 2 :]
        straight = lanes[:-1] if edge.id.endswith("_pocket") else lanes
        for turn, used in ((_Turn.RIGHT, right), (_Turn.STRAIGHT, straight), (_Turn.LEFT, left)):
            if turn not in targets:
                continue
            target = targets[turn]
            step = -1 if turn == _Turn.LEFT else 1  # left turns are matched from the left lane, others from the right
            pairs = zip(used[::step], target.motor_lanes[::step], strict=False)
            self._connections |= {Connection(edge.id, here, target.id, there) for here, there in pairs}

    def _connect_bicycles(self, edge: Edge, targets: Mapping[_Turn, Edge]) -> None:
        """Connects bicycle lanes to the right and straight ahead; netconvert would leave them out."""
        for turn in (_Turn.RIGHT, _Turn.STRAIGHT):
            target = targets.get(turn)
            if target is not None and edge.bike_lane is not None and target.bike_lane is not None:
                self._connections.add(Connection(edge.id, edge.bike_lane, target.id, target.bike_lane))

    def build(self, *, rotation_rad: float, signal_timing: SignalTiming) -> PlainNetwork:
        """The network, rotated around (0, 0)."""
        nodes = [
            replace(node, position_m=tuple(rotate(np.array(node.position_m), rotation_rad).tolist()))
            for node in self._nodes.values()
        ]
        edges = [replace(edge, shape_m=rotate(edge.shape_m, rotation_rad)) for edge in self._edges.values()]
        return PlainNetwork(
            nodes=tuple(nodes),
            edges=tuple(edges),
            connections=tuple(sorted(self._connections)),
            signal_timing=signal_timing,
        )


def road_name(start: str, end: str) -> str:
    """The id of the edge from one node to another."""
    return f"{start}_to_{end}"


def winding_line(pieces: Sequence[tuple[float, float]], *, spacing_m: float = POINT_SPACING_M) -> LinePoints:
    """A chain of arcs that starts at (0, 0) along +x.

    Args:
        pieces: length in metres and heading change in radians (left positive) of each arc.
        spacing_m: largest distance between points.
    """
    lengths, turns = np.array(pieces).T
    ends_m = np.concatenate([[0], np.cumsum(lengths)])
    headings = np.concatenate([[0], np.cumsum(turns)])
    at_m = np.linspace(0, ends_m[-1], max(int(np.ceil(ends_m[-1] / spacing_m)), 2) + 1)
    middle = np.interp((at_m[1:] + at_m[:-1]) / 2, ends_m, headings)
    steps = np.diff(at_m)[:, None] * np.stack([np.cos(middle), np.sin(middle)], axis=1)
    return np.concatenate([np.zeros((1, 2)), np.cumsum(steps, axis=0)])


def straight_line(start_m: Float[np.ndarray, "2"], end_m: Float[np.ndarray, "2"]) -> LinePoints:
    """Evenly spaced points of a straight line, both ends included."""
    count = int(np.ceil(np.linalg.norm(end_m - start_m) / POINT_SPACING_M)) + 1
    return np.linspace(start_m, end_m, count)


def bezier(*control_m: Float[np.ndarray, "2"]) -> LinePoints:
    """A cubic Bezier curve of four control points."""
    t = np.linspace(0, 1, 17)[:, None]
    one, two, three, four = control_m
    return (1 - t) ** 3 * one + 3 * (1 - t) ** 2 * t * two + 3 * (1 - t) * t**2 * three + t**3 * four


def offset_line(line_m: LinePoints, left_m: float | Float[np.ndarray, " p"]) -> LinePoints:
    """The parallel line `left_m` metres to the left (negative: right), per line or per point. Corners are mitred."""
    heading = directions(line_m)
    before = np.concatenate([heading[:1], heading[:-1]])
    half_turn = wrap_angle(heading - before) / 2
    middle = before + half_turn
    normal = np.stack([-np.sin(middle), np.cos(middle)], axis=1) / np.maximum(np.cos(half_turn), 0.5)[:, None]
    return line_m + normal * np.broadcast_to(left_m, len(line_m))[:, None]


def _curve_speed_mps(line_m: LinePoints, *, right_m: float) -> float:
    """sqrt(max. lateral acceleration / curvature) at the tightest point of the line or of its parallel at `right_m`."""
    heading = np.unwrap(directions(line_m)[:-1])
    step_m = np.diff(arclengths(line_m))
    curvature = np.diff(heading) / ((step_m[1:] + step_m[:-1]) / 2)
    tightest = [
        np.abs(curvature / np.maximum(1 + curvature * side_m, 0.05)).max(initial=1e-6) for side_m in (0, right_m)
    ]
    return float(np.sqrt(_MAX_LATERAL_MPS2 / max(tightest)))


def _median_share(line_m: LinePoints, start_pocket_m: float, end_pocket_m: float) -> Float[np.ndarray, " p"]:
    """Width of the median along the line, relative to its full width: 0 to 1."""
    at_m = arclengths(line_m)
    if start_pocket_m and end_pocket_m:
        return np.ones(len(at_m))
    to_end_m = at_m[-1] - at_m if end_pocket_m else at_m
    pocket_m = start_pocket_m or end_pocket_m
    if pocket_m == 0:
        return np.zeros(len(at_m))
    share = np.clip(1 - (to_end_m - pocket_m - 5) / _TAPER_M, 0, 1)
    return share**2 * (3 - 2 * share)


def _turn_between(edge: Edge, target: Edge) -> _Turn | None:
    """The turn from one edge to another; None for a U-turn."""
    before, after = directions(edge.shape_m)[-1:], directions(target.shape_m)[:1]
    angle = wrap_angle(after - before).item()
    if abs(angle) > _UTURN_RAD:
        return None
    if abs(angle) < _STRAIGHT_RAD:
        return _Turn.STRAIGHT
    return _Turn.LEFT if angle > 0 else _Turn.RIGHT
