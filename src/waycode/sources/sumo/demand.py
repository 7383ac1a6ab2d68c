"""The traffic of one episode: types of road users, and their trips."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from waycode.scene import TrackType
from waycode.sources.sumo.families import NetworkPlan
from waycode.sources.sumo.netconvert import RoadNetwork
from waycode.sources.sumo.plain import VehicleClass

MOTOR_MODES = ("car", "truck", "bus")
_TYPES_PER_EPISODE = {"car": 12, "truck": 3, "bus": 2, "bicycle": 3, "pedestrian": 4}
_MODE_SHARE = {"car": 0.88, "truck": 0.08, "bus": 0.04}  # of the motor vehicles
# Shortest, longest, narrowest, widest.
_SIZES_M = {"car": (4.2, 5.2, 1.75, 2.05), "truck": (6.5, 9.5, 2.2, 2.5), "bus": (10.5, 12.0, 2.5, 2.55)}


@dataclass(frozen=True, kw_only=True)
class RoadUserType:
    """A kind of road user: the size of its box, its axles, and SUMO's parameters of its behaviour."""

    name: str  # SUMO's vType id
    mode: str  # car, truck, bus, bicycle or pedestrian
    track_type: TrackType
    length_m: float
    width_m: float
    wheelbase_m: float  # 0 for pedestrians
    front_overhang_m: float  # from the front axle to the bumper
    sumo_attributes: tuple[tuple[str, str], ...]  # of the vType element


@dataclass(frozen=True, kw_only=True)
class Trip:
    """One road user's trip."""

    id: str
    type: RoadUserType
    depart_s: float  # time in the episode
    edges: tuple[str, ...]  # the whole route; for a pedestrian the first and the last edge


@dataclass(frozen=True, kw_only=True)
class Demand:
    """All trips of an episode."""

    types: tuple[RoadUserType, ...]
    trips: tuple[Trip, ...]  # in order of departure

    def write(self, path: Path) -> None:
        """Writes SUMO's route file."""
        root = ElementTree.Element("routes")
        for kind in self.types:
            ElementTree.SubElement(root, "vType", dict(kind.sumo_attributes))
        for trip in self.trips:
            attributes = {"id": trip.id, "type": trip.type.name, "depart": f"{trip.depart_s:.1f}"}
            if trip.type.mode == "pedestrian":
                person = ElementTree.SubElement(root, "person", {**attributes, "departPos": "random"})
                walk = {"from": trip.edges[0], "to": trip.edges[1], "arrivalPos": "random"}
                ElementTree.SubElement(person, "walk", walk)
            else:
                attributes |= {"departLane": "best", "departSpeed": "desired", "departPos": "base"}
                vehicle = ElementTree.SubElement(root, "vehicle", attributes)
                ElementTree.SubElement(vehicle, "route", {"edges": " ".join(trip.edges)})
        ElementTree.indent(root)
        ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def draw_demand(plan: NetworkPlan, network: RoadNetwork, rng: np.random.Generator, *, duration_s: float) -> Demand:
    """Random traffic: motor vehicles from every entry edge, bicycles and pedestrians where they are allowed."""
    draw = {"bicycle": _draw_bicycle, "pedestrian": _draw_pedestrian}
    types = {
        mode: [draw.get(mode, _draw_motor_vehicle)(rng, mode, index) for index in range(count)]
        for mode, count in _TYPES_PER_EPISODE.items()
    }
    trips = _motor_trips(plan, network, rng, types, duration_s)
    trips += _bicycle_trips(plan, network, rng, types["bicycle"], duration_s)
    trips += _walks(plan, rng, types["pedestrian"], duration_s)
    ordered = sorted(trips, key=lambda trip: (trip.depart_s, trip.id))
    return Demand(types=tuple(kind for kinds in types.values() for kind in kinds), trips=tuple(ordered))


def _draw_motor_vehicle(rng: np.random.Generator, mode: str, index: int) -> RoadUserType:
    """Drivers differ in size, speed, gap and assertiveness."""
    shortest, longest, narrowest, widest = _SIZES_M[mode]
    length, width = rng.uniform(shortest, longest), rng.uniform(narrowest, widest)
    acceleration_factor, speed_factor = (1.0, 1.0) if mode == "car" else (0.75, 0.92)
    mean_speed = rng.uniform(0.85, 1.1) * speed_factor
    attributes = {
        "id": f"{mode}{index}",
        "vClass": {"car": "passenger", "truck": "truck", "bus": "bus"}[mode],
        "length": f"{length:.2f}",
        "width": f"{width:.2f}",
        "carFollowModel": "EIDM",
        "jerkmax": "3",
        "accel": f"{acceleration_factor * rng.uniform(1.3, 2.3):.2f}",
        "decel": f"{rng.uniform(3.5, 4.8):.2f}",
        "emergencyDecel": "8",
        "tau": f"{rng.uniform(0.9, 1.8):.2f}",
        "minGap": f"{rng.uniform(1.5, 3.0):.2f}",
        "sigma": f"{rng.uniform(0.1, 0.5):.2f}",
        "speedFactor": f"normc({mean_speed:.2f},0.08,0.7,1.25)",
        "laneChangeModel": "SL2015",
        "maxSpeedLat": f"{rng.uniform(0.7, 1.3):.2f}",
        "lcMaxSpeedLatStanding": "0",  # without these two, cars move sideways in queues
        "lcMaxSpeedLatFactor": "0.1",
        "lcSpeedGain": f"{rng.uniform(1.0, 3.0):.2f}",
        "lcAssertive": f"{rng.uniform(1.0, 1.5):.2f}",
        "minGapLat": "0.5",
    }
    return RoadUserType(
        name=attributes["id"],
        mode=mode,
        track_type=TrackType.VEHICLE,
        length_m=round(length, 2),
        width_m=round(width, 2),
        wheelbase_m=0.6 * length,
        front_overhang_m=0.19 * length,
        sumo_attributes=tuple(attributes.items()),
    )


def _draw_bicycle(rng: np.random.Generator, mode: str, index: int) -> RoadUserType:
    attributes = {
        "id": f"{mode}{index}",
        "vClass": "bicycle",
        "length": "1.80",
        "width": "0.65",
        "carFollowModel": "IDM",
        "accel": f"{rng.uniform(0.8, 1.2):.2f}",
        "decel": "2.5",
        "emergencyDecel": "5",
        "maxSpeed": f"{rng.uniform(4.0, 6.5):.2f}",
        "tau": "1.0",
        "minGap": "0.8",
        "speedFactor": "1",
        "laneChangeModel": "SL2015",
        "latAlignment": "right",
        "maxSpeedLat": "0.6",
        "lcMaxSpeedLatStanding": "0",
        "lcMaxSpeedLatFactor": "0.1",
        "minGapLat": "0.6",
    }
    return RoadUserType(
        name=attributes["id"], mode=mode, track_type=TrackType.CYCLIST, length_m=1.8, width_m=0.65, wheelbase_m=1.05,
        front_overhang_m=0.35, sumo_attributes=tuple(attributes.items()),
    )  # fmt: skip


def _draw_pedestrian(rng: np.random.Generator, mode: str, index: int) -> RoadUserType:
    attributes = {
        "id": f"{mode}{index}",
        "vClass": "pedestrian",
        "length": "0.50",
        "width": "0.60",
        "maxSpeed": f"{rng.uniform(1.1, 1.7):.2f}",
        "speedFactor": "1",
    }
    return RoadUserType(
        name=attributes["id"], mode=mode, track_type=TrackType.PEDESTRIAN, length_m=0.5, width_m=0.6, wheelbase_m=0.0,
        front_overhang_m=0.0, sumo_attributes=tuple(attributes.items()),
    )  # fmt: skip


def _motor_trips(
    plan: NetworkPlan,
    network: RoadNetwork,
    rng: np.random.Generator,
    types: dict[str, list[RoadUserType]],
    duration_s: float,
) -> list[Trip]:
    routes = {entry: _routes(network, entry, plan.exit_edges, VehicleClass.PASSENGER) for entry in plan.entry_edges}
    traffic_level = rng.uniform(0.5, 1.4)
    trips: list[Trip] = []
    for entry in plan.entry_edges:
        lanes = sum(VehicleClass.PASSENGER in network.lanes[lane].allowed for lane in network.edges[entry].lanes)
        rate_per_s = traffic_level * rng.uniform(0.05, 0.13) * lanes * (1.6 if plan.is_freeway else 1.0)
        weights = rng.dirichlet(np.full(max(len(routes[entry]), 1), 2.0))
        for depart in _departures(rng, rate_per_s, duration_s):
            mode = str(rng.choice(list(_MODE_SHARE), p=list(_MODE_SHARE.values())))
            kind = types[mode][int(rng.integers(len(types[mode])))]
            if routes[entry]:
                edges = routes[entry][int(rng.choice(len(weights), p=weights))]
                trips.append(Trip(id=f"{mode}-{entry}-{len(trips)}", type=kind, depart_s=depart, edges=edges))
    return trips


def _bicycle_trips(
    plan: NetworkPlan, network: RoadNetwork, rng: np.random.Generator, types: Sequence[RoadUserType], duration_s: float
) -> list[Trip]:
    trips: list[Trip] = []
    for entry in (edge for edge in plan.entry_edges if edge in plan.bike_edges):
        routes = _routes(network, entry, plan.exit_edges, VehicleClass.BICYCLE)
        for depart in _departures(rng, rng.uniform(0.005, 0.03), duration_s):
            kind = types[int(rng.integers(len(types)))]
            if routes:
                edges = routes[int(rng.integers(len(routes)))]
                trips.append(Trip(id=f"bicycle-{entry}-{len(trips)}", type=kind, depart_s=depart, edges=edges))
    return trips


def _walks(plan: NetworkPlan, rng: np.random.Generator, types: Sequence[RoadUserType], duration_s: float) -> list[Trip]:
    if len(plan.sidewalk_edges) < 2:
        return []
    trips: list[Trip] = []
    for depart in _departures(rng, rng.uniform(0.05, 0.25), duration_s):
        start, end = rng.choice(len(plan.sidewalk_edges), size=2, replace=False)
        kind = types[int(rng.integers(len(types)))]
        edges = (plan.sidewalk_edges[int(start)], plan.sidewalk_edges[int(end)])
        trips.append(Trip(id=f"pedestrian-{len(trips)}", type=kind, depart_s=depart, edges=edges))
    return trips


def _departures(rng: np.random.Generator, rate_per_s: float, duration_s: float) -> list[float]:
    """Times of a Poisson process, rounded to 0.1 s."""
    count = int(rng.poisson(rate_per_s * duration_s))
    return [round(float(time), 1) for time in np.sort(rng.uniform(0, duration_s, count))]


def _routes(
    network: RoadNetwork, entry: str, exits: Sequence[str], vehicle_class: VehicleClass
) -> list[tuple[str, ...]]:
    """The route with the fewest edges from the entry to each exit that can be reached (breadth-first search)."""
    route_to: dict[str, tuple[str, ...]] = {entry: (entry,)}
    frontier = [entry]
    while frontier:
        reached = []
        for edge in frontier:
            for after in network.successors_of_edge(edge, vehicle_class):
                if after not in route_to:
                    route_to[after] = (*route_to[edge], after)
                    reached.append(after)
        frontier = reached
    return [route_to[goal] for goal in exits if goal in route_to]
