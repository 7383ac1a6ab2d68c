"""Builds networks with SUMO's netconvert and reads the result (`.net.xml`) as typed values in world coordinates."""

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
from waycode.sources.sumo.plain import MOTOR_CLASSES, Edge, LinePoints, PlainNetwork, VehicleClass

_OPTIONS = (
    "--junctions.internal-link-detail", "15",
    "--junctions.corner-detail", "8",
    "--junctions.limit-turn-speed", "3.0",
    "--junctions.limit-turn-speed.min-angle", "10",
    "--crossings.guess", "true",
    "--crossings.guess.speed-threshold", "25",  # otherwise faster roads get no crossings
    "--walkingareas", "true",
    "--no-turnarounds", "true",
    "--offset.disable-normalization", "true",  # keeps the coordinates of the plain network
    "--precision", "3",
)  # fmt: skip


class NetconvertError(SourceError):
    """netconvert is missing, failed, or printed a warning."""


@dataclass(frozen=True, kw_only=True)
class LaneInfo:
    """A lane of the built network."""

    id: str  # "<edge id>_<index>"
    edge_id: str
    index: int  # from the right
    shape_m: LinePoints  # centreline in driving direction
    length_m: float  # SUMO's, which may differ from that of the shape
    width_m: float
    speed_mps: float  # limit
    allowed: frozenset[VehicleClass]  # classes that may use the lane

    @property
    def is_internal(self) -> bool:
        """Whether the lane lies within a junction."""
        return self.edge_id.startswith(":")

    @property
    def is_for_vehicles(self) -> bool:
        """Whether vehicles, bicycles included, may use the lane: false for sidewalks."""
        return bool(self.allowed - {VehicleClass.PEDESTRIAN})

    @property
    def is_bike_lane(self) -> bool:
        return VehicleClass.BICYCLE in self.allowed and not self.allowed & MOTOR_CLASSES


@dataclass(frozen=True, kw_only=True)
class EdgeInfo:
    """An edge outside junctions."""

    id: str
    lanes: tuple[str, ...]  # lane ids from the right, including the sidewalk
    speed_mps: float  # limit of the fastest lane


@dataclass(frozen=True, kw_only=True)
class ConnectionInfo:
    """A link from lane to lane."""

    from_lane: str  # lane id
    to_lane: str  # lane id
    via_lane: str | None  # internal lane on the way; further connections start from it
    direction: str  # SUMO's letters: s straight, l left, r right, L and R partially left and right, t turn around
    state: str  # SUMO's letters: M major, m minor, s stop, w all-way stop, o and O signals ...
    signal_id: str  # traffic light that controls the link; "" without one
    link_index: int  # position of the link's letter in the state of that traffic light; -1 without one


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """A pedestrian crossing."""

    id: str
    shape_m: LinePoints  # centreline
    width_m: float


@dataclass(frozen=True, kw_only=True)
class RoadNetwork:
    """A built network in world coordinates. Mappings are sorted by key."""

    path: Path  # the .net.xml file
    is_freeway: bool  # whether its lanes are of type FREEWAY
    edges: Mapping[str, EdgeInfo]
    lanes: Mapping[str, LaneInfo]  # including internal lanes and sidewalks, without crossings and walking areas
    connections: tuple[ConnectionInfo, ...]  # sorted; including those of internal lanes
    crossings: tuple[Crossing, ...]
    junction_shapes_m: Mapping[str, LinePoints]  # outlines of junctions, without dead ends

    @cached_property
    def signal_links(self) -> dict[str, ConnectionInfo]:
        """The links that traffic lights control, by the internal lane that they enter (the lane of `Scene.signals`)."""
        return {link.via_lane: link for link in self.connections if link.signal_id and link.via_lane}

    def successors_of_edge(self, edge_id: str, vehicle_class: VehicleClass) -> tuple[str, ...]:
        """The edges that vehicles of a class can reach next. Not for pedestrians, who walk in both directions."""
        return self._successors.get((edge_id, vehicle_class), ())

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
    """Writes the plain XML files to the folder, runs netconvert, and reads the `net.xml` file that it writes."""
    nodes, edges, connections = write_plain(plain, folder)
    path = folder / "net.xml"
    timing = plain.signal_timing
    arguments = [
        "-n", nodes, "-e", edges, "-x", connections, "-o", path,
        *_OPTIONS,
        "--tls.cycle.time", timing.cycle_s,
        "--tls.yellow.time", timing.yellow_s,
        "--tls.left-green.time", timing.left_green_s,
    ]  # fmt: skip
    command = [netconvert_binary(), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    complaints = [line for line in result.stderr.splitlines() if line.startswith(("Error", "Warning"))]
    if result.returncode != 0 or complaints:
        output = "; ".join(complaints[:5]) or result.stderr.strip()[-500:] or "no output"
        raise NetconvertError(
            f"netconvert (exit code {result.returncode}) complained about the network in {folder}: {output}"
        )
    return read_network(path, is_freeway=is_freeway)


def netconvert_binary() -> str:
    """Path of the program, from the eclipse-sumo package if installed, else from PATH."""
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


def write_plain(network: PlainNetwork, folder: Path) -> tuple[Path, Path, Path]:
    """Writes files of nodes, edges and connections. The same network always gives the same bytes."""
    nodes, edges, connections = (ElementTree.Element(name) for name in ("nodes", "edges", "connections"))
    for node in network.nodes:
        x_m, y_m = node.position_m
        attributes = {"id": node.id, "x": _number(x_m), "y": _number(y_m), "type": str(node.type)}
        if node.radius_m is not None:
            attributes["radius"] = _number(node.radius_m)
        ElementTree.SubElement(nodes, "node", attributes)
    for edge in network.edges:
        _add_edge(edges, edge)
    for link in network.connections:
        attributes = {"from": link.from_edge, "to": link.to_edge}
        attributes |= {"fromLane": str(link.from_lane), "toLane": str(link.to_lane)}
        ElementTree.SubElement(connections, "connection", attributes)
    paths = (folder / "plain.nod.xml", folder / "plain.edg.xml", folder / "plain.con.xml")
    for path, root in zip(paths, (nodes, edges, connections), strict=True):
        path.write_bytes(ElementTree.tostring(root))
    return paths


def _add_edge(parent: ElementTree.Element, edge: Edge) -> None:
    line = shapely.LineString(edge.shape_m).simplify(0.004)  # fewer points on straights, for speed
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
    element = ElementTree.SubElement(parent, "edge", attributes)
    for index, lane in enumerate(edge.lanes):
        allowed = " ".join(sorted(lane.allowed))
        ElementTree.SubElement(element, "lane", {"index": str(index), "width": _number(lane.width_m), "allow": allowed})


def _number(value: float) -> str:
    return f"{value:.3f}"


def read_network(path: Path, *, is_freeway: bool = False) -> RoadNetwork:
    """Reads a .net.xml file."""
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
    found = (_connection(element, lanes_by_id) for element in root.iter("connection"))
    connections = sorted(
        (link for link in found if link is not None),
        key=lambda link: (link.from_lane, link.to_lane, link.via_lane or ""),
    )
    return RoadNetwork(
        path=path,
        is_freeway=is_freeway,
        edges={edge.id: edge for edge in sorted((_edge(edge, lanes_by_id) for edge in normal), key=lambda e: e.id)},
        lanes=lanes_by_id,
        connections=tuple(connections),
        crossings=tuple(sorted(map(_crossing, by_function.get("crossing", [])), key=lambda crossing: crossing.id)),
        junction_shapes_m=_junction_shapes(root),
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
    lane_ids = tuple(lane.id for lane in sorted(own, key=lambda lane: lane.index))
    return EdgeInfo(id=edge.attrib["id"], lanes=lane_ids, speed_mps=max(lane.speed_mps for lane in own))


def _connection(element: ElementTree.Element, lanes: Mapping[str, LaneInfo]) -> ConnectionInfo | None:
    """The connection; None for connections of sidewalks, walking areas and crossings."""
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
        signal_id=element.get("tl", ""),
        link_index=int(element.get("linkIndex", "-1")),
    )


def _crossing(edge: ElementTree.Element) -> Crossing:
    lane = edge[0]
    return Crossing(id=edge.attrib["id"], shape_m=_shape(lane), width_m=float(lane.get("width", "4")))


def _junction_shapes(root: ElementTree.Element) -> dict[str, LinePoints]:
    shapes = {
        junction.attrib["id"]: _shape(junction)
        for junction in root.iter("junction")
        if junction.get("type") not in ("internal", "dead_end") and junction.get("shape")
    }
    return {name: shape for name, shape in sorted(shapes.items()) if len(shape) >= 3}


def _shape(element: ElementTree.Element) -> LinePoints:
    """The points of a `shape` attribute, without heights."""
    points = [point.split(",")[:2] for point in element.attrib["shape"].split()]
    return np.array(points, np.float64).reshape(-1, 2)
