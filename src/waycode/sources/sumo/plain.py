"""A road network as SUMO's "plain XML" describes it: nodes, edges with their lanes, and connections between lanes.

Lanes are counted from the right: sidewalk (if any), bicycle lane (if any), then the lanes of vehicles. Traffic keeps to
the right, and an edge lies to the right of its `shape_m`, which is its left boundary.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
from jaxtyping import Float

from waycode.scene.frames import rotate, wrap_angle
from waycode.scene.geometry import arclengths, directions, interpolate

MAX_LATERAL_MPS2 = 2.2  # in curves
POINT_SPACING_M = 2.0  # along lines that are drawn
TAPER_M = 40.0  # on which a median grows to its full width
Points = Float[np.ndarray, "_ 2"]  # any number of points: two arguments may differ in it


class VehicleClass(StrEnum):
    """The road users that permissions tell apart, by SUMO's names."""

    PASSENGER = "passenger"
    TRUCK = "truck"
    BUS = "bus"
    MOTORCYCLE = "motorcycle"
    BICYCLE = "bicycle"
    PEDESTRIAN = "pedestrian"


MOTOR_CLASSES = frozenset({VehicleClass.PASSENGER, VehicleClass.TRUCK, VehicleClass.BUS, VehicleClass.MOTORCYCLE})


class NodeType(StrEnum):
    PRIORITY = "priority"
    PRIORITY_STOP = "priority_stop"  # the roads of lower priority stop
    ALL_WAY_STOP = "allway_stop"
    SIGNALS = "traffic_light"
    DEAD_END = "dead_end"


@dataclass(frozen=True, kw_only=True)
class Node:
    """A junction, or a point where an edge ends; `radius_m` is that of the kerb at its corners."""

    id: str
    position_m: tuple[float, float]
    type: NodeType = NodeType.PRIORITY
    radius_m: float | None = None


@dataclass(frozen=True, kw_only=True)
class Lane:
    """A strip of an edge and who may use it."""

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
    """One direction of a road; `shape_m` [p, 2] is its left boundary, `lanes` are counted from the right."""

    id: str
    start: str
    end: str
    lanes: tuple[Lane, ...]
    speed_mps: float
    shape_m: Points
    priority: int = 1

    @property
    def has_sidewalk(self) -> bool:
        return any(lane.is_sidewalk for lane in self.lanes)

    @property
    def motor_lanes(self) -> tuple[int, ...]:
        """Indices of the lanes that cars may use, from the right."""
        return tuple(index for index, lane in enumerate(self.lanes) if lane.is_for_motors)

    @property
    def bike_lane(self) -> int | None:
        """Index of the lane for bicycles alone."""
        return next((index for index, lane in enumerate(self.lanes) if lane.is_bike_lane), None)


@dataclass(frozen=True, kw_only=True)
class Connection:
    """A way from a lane to a lane across the node between their edges."""

    from_edge: str
    to_edge: str
    from_lane: int
    to_lane: int


@dataclass(frozen=True, kw_only=True)
class SignalTiming:
    """What netconvert builds the programs of all traffic lights from."""

    cycle_s: int = 60
    yellow_s: int = 3
    left_green_s: int = 8


@dataclass(frozen=True, kw_only=True)
class PlainNetwork:
    """All that netconvert needs. Every edge that leads on says with its connections to where."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    connections: tuple[Connection, ...]
    signal_timing: SignalTiming = field(default_factory=SignalTiming)


class Turn(StrEnum):
    RIGHT = "right"
    STRAIGHT = "straight"
    LEFT = "left"


@dataclass(frozen=True, kw_only=True)
class RoadProfile:
    """One direction of a road in cross-section; widths of 0 mean that there is none."""

    num_lanes: int
    lane_width_m: float
    speed_mps: float
    bike_lane_m: float = 0.0
    sidewalk_m: float = 0.0
    priority: int = 1
    open_to_bicycles: bool = True

    def lanes(self, extra: int = 0) -> tuple[Lane, ...]:
        """From the right; `extra` lanes are added on the left."""
        shares_lanes = self.open_to_bicycles and not self.bike_lane_m
        motors = MOTOR_CLASSES | {VehicleClass.BICYCLE} if shares_lanes else MOTOR_CLASSES
        sidewalk = Lane(width_m=self.sidewalk_m, allowed=frozenset({VehicleClass.PEDESTRIAN}))
        bikes = Lane(width_m=self.bike_lane_m, allowed=frozenset({VehicleClass.BICYCLE}))
        lane = Lane(width_m=self.lane_width_m, allowed=motors)
        sides = [side for side in (sidewalk, bikes) if side.width_m > 0]
        return (*sides, *[lane] * (self.num_lanes + extra))


class Draft:
    """A plain network in the making: roads are added, junctions connected, and the whole is turned at the end."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._edges: dict[str, Edge] = {}
        self._connections: set[tuple[str, int, str, int]] = set()

    def add_node(
        self,
        name: str,
        position_m: Float[np.ndarray, "2"],
        *,
        kind: NodeType = NodeType.PRIORITY,
        radius_m: float | None = None,
    ) -> None:
        x_m, y_m = position_m.tolist()
        self._nodes[name] = Node(id=name, position_m=(x_m, y_m), type=kind, radius_m=radius_m)

    def add_edge(
        self, name: str, boundary_m: Points, *, start: str, end: str, profile: RoadProfile, extra_lanes: int = 0
    ) -> None:
        """An edge to the right of its left boundary; its speed is one at which its curves can be driven."""
        lanes = profile.lanes(extra_lanes)
        width_m = sum(lane.width_m for lane in lanes)
        speed_mps = min(profile.speed_mps, comfortable_speed(boundary_m, right_m=width_m))
        self._edges[name] = Edge(
            id=name, start=start, end=end, lanes=lanes, speed_mps=speed_mps, shape_m=boundary_m,
            priority=profile.priority,
        )  # fmt: skip

    def add_road(
        self,
        start: str,
        end: str,
        *,
        line_m: Points,
        profile: RoadProfile,
        start_pocket_m: float = 0.0,
        end_pocket_m: float = 0.0,
    ) -> None:
        """Both directions of a road along a centreline, named `road_name(start, end)` and the reverse.

        A pocket is a lane for left turns on the last metres towards the start or the end. It has an edge of its own
        with one lane more, which is offset so that the other lanes run straight on, and is entered by a lane change.
        Its width is taken from a median between the directions; a road with a single pocket tapers to it.
        """
        half_m = profile.lane_width_m / 2 * _median_share(line_m, start_pocket_m, end_pocket_m)
        self._add_direction(start, end, offset(line_m, -half_m), profile, end_pocket_m)
        self._add_direction(end, start, offset(line_m, half_m)[::-1], profile, start_pocket_m)

    def _add_direction(self, start: str, end: str, boundary_m: Points, profile: RoadProfile, pocket_m: float) -> None:
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
        rest_m = offset(np.concatenate([split_m, boundary_m[~before]]), profile.lane_width_m)
        self.add_edge(pocket, rest_m, start=split, end=end, profile=profile, extra_lanes=1)
        self.link(name, pocket)

    def link(self, before: str, after: str, *, shift: int = 0) -> None:
        """Connects lane i (sidewalks aside) with lane i + shift, as far as there are such lanes."""
        here = [index for index, lane in enumerate(self._edges[before].lanes) if not lane.is_sidewalk]
        there = [index for index, lane in enumerate(self._edges[after].lanes) if not lane.is_sidewalk]
        for number, lane in enumerate(here):
            if 0 <= number + shift < len(there):
                self._connections.add((before, lane, after, there[number + shift]))

    def connect(self, node: str, *, forbidden: frozenset[tuple[str, str]] = frozenset()) -> None:
        """Connects all edges that meet at a node, except for U-turns and `forbidden` (from edge, to edge)."""
        for edge in [edge for edge in self._edges.values() if edge.end == node]:
            targets: dict[Turn, Edge] = {}
            for target in [target for target in self._edges.values() if target.start == node]:
                turn = _turn(edge, target)
                if turn is not None and (edge.id, target.id) not in forbidden:
                    targets[turn] = target
            self._connect_motor_lanes(edge, targets)
            self._connect_bicycles(edge, targets)

    def _connect_motor_lanes(self, edge: Edge, targets: Mapping[Turn, Edge]) -> None:
        lanes = edge.motor_lanes
        has_pocket = edge.id.endswith("_pocket")
        right, left = lanes[:1], lanes[-1:]
        if Turn.STRAIGHT not in targets and len(lanes) > 1:  # then all lanes turn
            cut = len(lanes) // 2 if {Turn.RIGHT, Turn.LEFT} <= set(targets) else (0, len(lanes))[Turn.RIGHT in targets]
            right, left = lanes[:cut], lanes[cut:]
        straight = lanes[:-1] if has_pocket else lanes
        for turn, used in ((Turn.RIGHT, right), (Turn.STRAIGHT, straight), (Turn.LEFT, left)):
            if turn not in targets:
                continue
            target = targets[turn]
            step = -1 if turn == Turn.LEFT else 1  # left turns keep to the left, all else to the right
            pairs = zip(used[::step], target.motor_lanes[::step], strict=False)
            self._connections |= {(edge.id, here, target.id, there) for here, there in pairs}

    def _connect_bicycles(self, edge: Edge, targets: Mapping[Turn, Edge]) -> None:
        """Bicycle lanes lead right and straight on; netconvert would leave them out."""
        for turn in (Turn.RIGHT, Turn.STRAIGHT):
            target = targets.get(turn)
            if target is not None and edge.bike_lane is not None and target.bike_lane is not None:
                self._connections.add((edge.id, edge.bike_lane, target.id, target.bike_lane))

    def network(self, *, turned_rad: float, signal_timing: SignalTiming) -> PlainNetwork:
        """The whole, turned around (0, 0)."""
        nodes = [
            replace(node, position_m=tuple(rotate(np.array(node.position_m), turned_rad).tolist()))
            for node in self._nodes.values()
        ]
        edges = [replace(edge, shape_m=rotate(edge.shape_m, turned_rad)) for edge in self._edges.values()]
        connections = [
            Connection(from_edge=before, from_lane=here, to_edge=after, to_lane=there)
            for before, here, after, there in sorted(self._connections)
        ]
        return PlainNetwork(
            nodes=tuple(nodes), edges=tuple(edges), connections=tuple(connections), signal_timing=signal_timing
        )


def road_name(start: str, end: str) -> str:
    """The id of the edge from a node to another."""
    return f"{start}_to_{end}"


def winding_line(pieces: Sequence[tuple[float, float]], *, spacing_m: float = POINT_SPACING_M) -> Points:
    """A line from (0, 0) along +x of arcs, each given by its length and by the angle it turns (left positive)."""
    lengths, turns = np.array(pieces).T
    ends_m = np.concatenate([[0], np.cumsum(lengths)])
    headings = np.concatenate([[0], np.cumsum(turns)])
    at_m = np.linspace(0, ends_m[-1], max(int(np.ceil(ends_m[-1] / spacing_m)), 2) + 1)
    middle = np.interp((at_m[1:] + at_m[:-1]) / 2, ends_m, headings)
    steps = np.diff(at_m)[:, None] * np.stack([np.cos(middle), np.sin(middle)], axis=1)
    return np.concatenate([np.zeros((1, 2)), np.cumsum(steps, axis=0)])


def straight_line(start_m: Float[np.ndarray, "2"], end_m: Float[np.ndarray, "2"]) -> Points:
    """Points in a row, both ends included."""
    count = int(np.ceil(np.linalg.norm(end_m - start_m) / POINT_SPACING_M)) + 1
    return np.linspace(start_m, end_m, count)


def bezier(*control_m: Float[np.ndarray, "2"]) -> Points:
    """A cubic Bezier curve through the first and last of four points."""
    t = np.linspace(0, 1, 17)[:, None]
    one, two, three, four = control_m
    return (1 - t) ** 3 * one + 3 * (1 - t) ** 2 * t * two + 3 * (1 - t) * t**2 * three + t**3 * four


def offset(line_m: Points, left_m: float | Float[np.ndarray, " p"]) -> Points:
    """The line moved to its left; corners are mitred."""
    heading = directions(line_m)
    before = np.concatenate([heading[:1], heading[:-1]])
    half_turn = wrap_angle(heading - before) / 2
    middle = before + half_turn
    normal = np.stack([-np.sin(middle), np.cos(middle)], axis=1) / np.maximum(np.cos(half_turn), 0.5)[:, None]
    return line_m + normal * np.broadcast_to(left_m, len(line_m))[:, None]


def comfortable_speed(line_m: Points, *, right_m: float) -> float:
    """sqrt(2.2 m/s2 / curvature) at the tightest place of the line or of its parallel to the right."""
    heading = np.unwrap(directions(line_m)[:-1])
    step_m = np.diff(arclengths(line_m))
    curvature = np.diff(heading) / ((step_m[1:] + step_m[:-1]) / 2)
    tightest = [
        np.abs(curvature / np.maximum(1 + curvature * side_m, 0.05)).max(initial=1e-6) for side_m in (0, right_m)
    ]
    return float(np.sqrt(MAX_LATERAL_MPS2 / max(tightest)))


def _median_share(line_m: Points, start_pocket_m: float, end_pocket_m: float) -> Float[np.ndarray, " p"]:
    """How much of its full width the median has along the line, 0 to 1."""
    at_m = arclengths(line_m)
    if start_pocket_m and end_pocket_m:
        return np.ones(len(at_m))
    to_end_m = at_m[-1] - at_m if end_pocket_m else at_m
    pocket_m = start_pocket_m or end_pocket_m
    if pocket_m == 0:
        return np.zeros(len(at_m))
    share = np.clip(1 - (to_end_m - pocket_m - 5) / TAPER_M, 0, 1)
    return share**2 * (3 - 2 * share)


def _turn(edge: Edge, target: Edge) -> Turn | None:
    """The kind of turn between two edges, or None for a U-turn."""
    before, after = directions(edge.shape_m)[-1:], directions(target.shape_m)[:1]
    angle = wrap_angle(after - before).item()
    if abs(angle) > np.radians(150):
        return None
    if abs(angle) < np.radians(42):
        return Turn.STRAIGHT
    return Turn.LEFT if angle > 0 else Turn.RIGHT
