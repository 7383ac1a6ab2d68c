"""Builds networks with SUMO's netconvert and reads what it made (`.net.xml`) as typed values in world coordinates."""

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import shapely

from waycode.sources.base import SourceError
from waycode.sources.sumo.plain import (
    MOTOR_CLASSES,
    Connection,
    Edge,
    Node,
    PlainNetwork,
    Points,
    SignalTiming,
    VehicleClass,
)

OPTIONS = (
    "--junctions.internal-link-detail", "15",
    "--junctions.corner-detail", "8",
    "--junctions.limit-turn-speed", "3.0",
    "--junctions.limit-turn-speed.min-angle", "10",
    "--crossings.guess", "true",
    "--crossings.guess.speed-threshold", "25",  # else faster roads get no crossings and pedestrians are cut off
    "--walkingareas", "true",
    "--no-turnarounds", "true",
    "--offset.disable-normalization", "true",  # coordinates stay those of the plain network
    "--precision", "3",
)  # fmt: skip


class NetconvertError(SourceError):
    """netconvert is missing, or refused a network or warned of it."""


@dataclass(frozen=True, kw_only=True)
class LaneInfo:
    """A lane of the built network; `shape_m` [p, 2] is its centreline in driving direction."""

    id: str  # "<edge id>_<index>"
    edge_id: str
    index: int  # from the right
    shape_m: Points
    length_m: float  # by which SUMO counts positions
    width_m: float
    speed_mps: float
    allowed: frozenset[VehicleClass]

    @property
    def is_internal(self) -> bool:
        """Whether it lies within a junction."""
        return self.edge_id.startswith(":")

    @property
    def is_for_vehicles(self) -> bool:
        """Whether it is more than a sidewalk; bicycles are vehicles."""
        return bool(self.allowed - {VehicleClass.PEDESTRIAN})

    @property
    def is_bike_lane(self) -> bool:
        return VehicleClass.BICYCLE in self.allowed and not self.allowed & MOTOR_CLASSES


@dataclass(frozen=True, kw_only=True)
class EdgeInfo:
    """A normal edge (none within junctions)."""

    id: str
    from_junction: str
    to_junction: str
    lanes: tuple[str, ...]  # lane ids from right to left, the sidewalk included
    length_m: float
    speed_mps: float
    allowed: frozenset[VehicleClass]  # in any of its lanes
    has_sidewalk: bool


@dataclass(frozen=True, kw_only=True)
class ConnectionInfo:
    """A way from lane to lane; `via_lane` is the internal lane to go through, and connections go on from there."""

    from_lane: str
    to_lane: str
    via_lane: str | None
    direction: str  # SUMO's letters: s straight, l left, r right, L and R partially left and right, t turn around
    state: str  # SUMO's letters: M major, m minor, s stop, w all-way stop, o and O signals ...
    signal_id: str | None
    link_index: int | None


@dataclass(frozen=True, kw_only=True)
class SignalLink:
    """A traffic-light-controlled way through a junction: its light is letter `link_index` of the signal's state."""

    signal_id: str
    link_index: int
    approach_lane: str
    internal_lane: str  # the signalled lane of `Scene.signals`
    stop_point_m: tuple[float, float]  # the end of the approach lane


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """Where pedestrians cross a road; `shape_m` [p, 2] is its centreline."""

    id: str
    shape_m: Points
    width_m: float
    crossed_edges: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RoadNetwork:
    """A built network, all in world coordinates; every mapping is in sorted order."""

    path: Path  # the .net.xml, for sumo
    is_freeway: bool
    edges: Mapping[str, EdgeInfo]
    lanes: Mapping[str, LaneInfo]  # normal and internal lanes, sidewalks too; no crossings and walking areas
    connections: tuple[ConnectionInfo, ...]  # sorted; internal parts too
    crossings: tuple[Crossing, ...]
    junction_shapes_m: Mapping[str, Points]  # outlines of the junctions that are more than an end of a road
    signal_links: tuple[SignalLink, ...]

    def successors_of_edge(self, edge_id: str, vehicle_class: VehicleClass) -> tuple[str, ...]:
        """The edges that this class can go on to (for pedestrians use SUMO's own routing: they walk both ways)."""
        return self._successors.get((edge_id, vehicle_class), ())

    def entries(self, vehicle_class: VehicleClass) -> tuple[str, ...]:
        """Edges open to this class that it can come to from nowhere."""
        reached = {after for (_, kind), edges in self._successors.items() if kind == vehicle_class for after in edges}
        return tuple(edge.id for edge in self._open_to(vehicle_class) if edge.id not in reached)

    def exits(self, vehicle_class: VehicleClass) -> tuple[str, ...]:
        """Edges open to this class that lead it nowhere."""
        return tuple(
            edge.id for edge in self._open_to(vehicle_class) if not self.successors_of_edge(edge.id, vehicle_class)
        )

    @property
    def sidewalk_edges(self) -> tuple[str, ...]:
        return tuple(edge.id for edge in self.edges.values() if edge.has_sidewalk)

    def _open_to(self, vehicle_class: VehicleClass) -> list[EdgeInfo]:
        return [edge for edge in self.edges.values() if vehicle_class in edge.allowed]

    @cached_property
    def _successors(self) -> dict[tuple[str, VehicleClass], tuple[str, ...]]:
        found: dict[tuple[str, VehicleClass], set[str]] = {}
        for link in self.connections:
            before, after = self.lanes[link.from_lane], self.lanes[link.to_lane]
            if before.is_internal:
                continue
            for vehicle_class in before.allowed & after.allowed:
                found.setdefault((before.edge_id, vehicle_class), set()).add(after.edge_id)
        return {key: tuple(sorted(edges)) for key, edges in sorted(found.items())}


def build_network(plain: PlainNetwork, folder: Path, *, is_freeway: bool = False) -> RoadNetwork:
    """Writes the plain XML to the folder, runs netconvert there and reads the `net.xml` that it makes."""
    nodes, edges, connections = write_plain(plain, folder)
    path = folder / "net.xml"
    inputs = ["-n", nodes, "-e", edges, "-x", connections, "-o", path]
    command = [netconvert_binary(), *map(str, inputs), *OPTIONS, *_timing_options(plain.signal_timing)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    complaints = [line for line in result.stderr.splitlines() if line.startswith(("Error", "Warning"))]
    if result.returncode != 0 or complaints:
        said = "; ".join(complaints[:5]) or result.stderr.strip()[-500:]
        raise NetconvertError(
            f"netconvert (exit code {result.returncode}) complained of the network in {folder}: {said or 'nothing'}"
        )
    return read_network(path, is_freeway=is_freeway)


def netconvert_binary() -> str:
    """The path of the program, from the eclipse-sumo package or else from PATH."""
    try:
        import sumo
    except ImportError:
        candidates = []
    else:
        candidates = [Path(sumo.SUMO_HOME) / "bin" / name for name in ("netconvert", "netconvert.exe")]
    found = next((str(path) for path in candidates if path.is_file()), None) or shutil.which("netconvert")
    if found is None:
        raise NetconvertError("netconvert was not found: install SUMO with `pip install 'waycode[sumo]'`")
    return found


def _timing_options(timing: SignalTiming) -> list[str]:
    return [
        "--tls.cycle.time", str(timing.cycle_s),
        "--tls.yellow.time", str(timing.yellow_s),
        "--tls.left-green.time", str(timing.left_green_s),
    ]  # fmt: skip


def write_plain(network: PlainNetwork, folder: Path) -> tuple[Path, Path, Path]:
    """Writes files of nodes, edges and connections; the same network always gives the same bytes."""
    nodes, edges, connections = (folder / f"plain.{kind}.xml" for kind in ("nod", "edg", "con"))
    _write(nodes, "nodes", [_node_element(node) for node in network.nodes])
    _write(edges, "edges", [_edge_element(edge) for edge in network.edges])
    _write(connections, "connections", [_connection_element(link) for link in network.connections])
    return nodes, edges, connections


def _write(path: Path, root_name: str, elements: list[ElementTree.Element]) -> None:
    root = ElementTree.Element(root_name)
    root.extend(elements)
    path.write_bytes(ElementTree.tostring(root))


def _node_element(node: Node) -> ElementTree.Element:
    x_m, y_m = node.position_m
    attributes = {"id": node.id, "x": _number(x_m), "y": _number(y_m), "type": str(node.type)}
    if node.radius_m is not None:
        attributes["radius"] = _number(node.radius_m)
    return ElementTree.Element("node", attributes)


def _edge_element(edge: Edge) -> ElementTree.Element:
    line = shapely.LineString(edge.shape_m).simplify(0.004)  # fewer points on straights: everything after is faster
    attributes = {
        "id": edge.id,
        "from": edge.start,
        "to": edge.end,
        "numLanes": str(len(edge.lanes)),
        "speed": _number(edge.speed_mps),
        "priority": str(edge.priority),
        "spreadType": "right",
        "shape": " ".join(f"{_number(x_m)},{_number(y_m)}" for x_m, y_m in line.coords),
    }
    element = ElementTree.Element("edge", attributes)
    for index, lane in enumerate(edge.lanes):
        allowed = " ".join(sorted(lane.allowed))
        lane_attributes = {"index": str(index), "width": _number(lane.width_m), "allow": allowed}
        element.append(ElementTree.Element("lane", lane_attributes))
    return element


def _connection_element(link: Connection) -> ElementTree.Element:
    attributes = {"from": link.from_edge, "to": link.to_edge}
    attributes |= {"fromLane": str(link.from_lane), "toLane": str(link.to_lane)}
    return ElementTree.Element("connection", attributes)


def _number(value: float) -> str:
    return f"{value:.3f}"


def read_network(path: Path, *, is_freeway: bool = False) -> RoadNetwork:
    """Reads a .net.xml."""
    try:
        root = ElementTree.parse(path).getroot()  # noqa: S314 (our own file)
    except (OSError, ElementTree.ParseError) as error:
        raise NetconvertError(f"{path} is not a network that netconvert wrote ({error})") from error
    by_function: dict[str, list[ElementTree.Element]] = {}
    for element in root.iter("edge"):
        by_function.setdefault(element.get("function", "normal"), []).append(element)
    normal = by_function.get("normal", [])
    lanes = [_lane(lane, edge) for edge in normal + by_function.get("internal", []) for lane in edge.iter("lane")]
    lanes_by_id = {lane.id: lane for lane in sorted(lanes, key=lambda lane: lane.id)}
    connections = [_connection(element, lanes_by_id) for element in root.iter("connection")]
    known = tuple(sorted((link for link in connections if link is not None), key=_connection_key))
    return RoadNetwork(
        path=path,
        is_freeway=is_freeway,
        edges={edge.id: edge for edge in sorted((_edge(edge, lanes_by_id) for edge in normal), key=lambda e: e.id)},
        lanes=lanes_by_id,
        connections=known,
        crossings=tuple(sorted(map(_crossing, by_function.get("crossing", [])), key=lambda crossing: crossing.id)),
        junction_shapes_m=_junction_shapes(root),
        signal_links=_signal_links(known, lanes_by_id),
    )


def _lane(lane: ElementTree.Element, edge: ElementTree.Element) -> LaneInfo:
    return LaneInfo(
        id=lane.attrib["id"],
        edge_id=edge.attrib["id"],
        index=int(lane.attrib["index"]),
        shape_m=_shape(lane),
        length_m=float(lane.attrib["length"]),
        width_m=float(lane.get("width", "3.2")),
        speed_mps=float(lane.attrib["speed"]),
        allowed=_allowed(lane),
    )


def _allowed(lane: ElementTree.Element) -> frozenset[VehicleClass]:
    classes = frozenset(VehicleClass)
    if "allow" in lane.attrib:
        names = lane.attrib["allow"].split()
        return classes if names == ["all"] else frozenset(kind for kind in classes if kind in names)
    names = lane.get("disallow", "").split()
    return frozenset() if names == ["all"] else frozenset(kind for kind in classes if kind not in names)


def _edge(edge: ElementTree.Element, lanes: Mapping[str, LaneInfo]) -> EdgeInfo:
    own = [lanes[lane.attrib["id"]] for lane in edge.iter("lane")]
    return EdgeInfo(
        id=edge.attrib["id"],
        from_junction=edge.attrib["from"],
        to_junction=edge.attrib["to"],
        lanes=tuple(lane.id for lane in sorted(own, key=lambda lane: lane.index)),
        length_m=own[0].length_m,
        speed_mps=max(lane.speed_mps for lane in own),
        allowed=frozenset().union(*(lane.allowed for lane in own)),
        has_sidewalk=any(lane.allowed == {VehicleClass.PEDESTRIAN} for lane in own),
    )


def _connection(element: ElementTree.Element, lanes: Mapping[str, LaneInfo]) -> ConnectionInfo | None:
    """The connection, or None for one between sidewalks, walking areas and crossings."""
    from_lane = f"{element.attrib['from']}_{element.attrib['fromLane']}"
    to_lane = f"{element.attrib['to']}_{element.attrib['toLane']}"
    if not all(lane in lanes and lanes[lane].is_for_vehicles for lane in (from_lane, to_lane)):
        return None
    return ConnectionInfo(
        from_lane=from_lane,
        to_lane=to_lane,
        via_lane=element.get("via"),
        direction=element.attrib["dir"],
        state=element.attrib["state"],
        signal_id=element.get("tl"),
        link_index=None if "linkIndex" not in element.attrib else int(element.attrib["linkIndex"]),
    )


def _connection_key(link: ConnectionInfo) -> tuple[str, str, str]:
    return link.from_lane, link.to_lane, link.via_lane or ""


def _crossing(edge: ElementTree.Element) -> Crossing:
    lane = edge[0]
    crossed = tuple(sorted(edge.get("crossingEdges", "").split()))
    return Crossing(
        id=edge.attrib["id"], shape_m=_shape(lane), width_m=float(lane.get("width", "4")), crossed_edges=crossed
    )


def _junction_shapes(root: ElementTree.Element) -> dict[str, Points]:
    shapes = {
        junction.attrib["id"]: _shape(junction)
        for junction in root.iter("junction")
        if junction.get("type") not in ("internal", "dead_end") and junction.get("shape")
    }
    return {name: shape for name, shape in sorted(shapes.items()) if len(shape) >= 3}


def _signal_links(links: tuple[ConnectionInfo, ...], lanes: Mapping[str, LaneInfo]) -> tuple[SignalLink, ...]:
    found = []
    for link in links:
        if link.signal_id is None or link.link_index is None or link.via_lane is None:
            continue
        x_m, y_m = lanes[link.from_lane].shape_m[-1].tolist()
        found.append(
            SignalLink(
                signal_id=link.signal_id, link_index=link.link_index, approach_lane=link.from_lane,
                internal_lane=link.via_lane, stop_point_m=(x_m, y_m),
            )
        )  # fmt: skip
    return tuple(sorted(found, key=lambda link: (link.signal_id, link.link_index, link.internal_lane)))


def _shape(element: ElementTree.Element) -> Points:
    """The points of a `shape` attribute; a height, if any, is left out."""
    points = [point.split(",")[:2] for point in element.attrib["shape"].split()]
    return np.array(points, np.float64).reshape(-1, 2)
