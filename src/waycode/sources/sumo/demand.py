"""Who wants to go where and when, in one episode."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from waycode.sources.sumo.families import NetworkPlan
from waycode.sources.sumo.netconvert import RoadNetwork
from waycode.sources.sumo.plain import VehicleClass
from waycode.sources.sumo.road_users import MODE_SHARE, RoadUserType, draw_types

CLASS_OF_MODE = {
    "car": VehicleClass.PASSENGER,
    "truck": VehicleClass.TRUCK,
    "bus": VehicleClass.BUS,
    "bicycle": VehicleClass.BICYCLE,
    "pedestrian": VehicleClass.PEDESTRIAN,
}


@dataclass(frozen=True, kw_only=True)
class Trip:
    """One road user's wish; `edges` is its whole route (for a person: the first and the last edge of the walk)."""

    id: str
    type: RoadUserType
    depart_s: float
    edges: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Demand:
    types: tuple[RoadUserType, ...]
    trips: tuple[Trip, ...]  # in order of departure

    def write(self, path: Path) -> None:
        """Writes SUMO's route file."""
        root = ElementTree.Element("routes")
        root.extend(kind.element() for kind in self.types)
        root.extend(_element(trip) for trip in self.trips)
        ElementTree.indent(root)
        ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def draw_demand(plan: NetworkPlan, network: RoadNetwork, rng: np.random.Generator, *, duration_s: float) -> Demand:
    """Random traffic for a network: motor vehicles from every entry, bicycles and pedestrians where they may go."""
    types = draw_types(rng)
    trips = _motor_trips(plan, network, rng, types, duration_s)
    trips += _bicycle_trips(plan, network, rng, types["bicycle"], duration_s)
    trips += _walks(plan, rng, types["pedestrian"], duration_s)
    ordered = sorted(trips, key=lambda trip: (trip.depart_s, trip.id))
    return Demand(types=tuple(kind for kinds in types.values() for kind in kinds), trips=tuple(ordered))


def _motor_trips(
    plan: NetworkPlan,
    network: RoadNetwork,
    rng: np.random.Generator,
    types: dict[str, list[RoadUserType]],
    duration_s: float,
) -> list[Trip]:
    routes = {entry: _routes(network, entry, plan.exit_edges, VehicleClass.PASSENGER) for entry in plan.entry_edges}
    busy = rng.uniform(0.5, 1.4)
    trips: list[Trip] = []
    for entry in plan.entry_edges:
        lanes = sum(VehicleClass.PASSENGER in network.lanes[lane].allowed for lane in network.edges[entry].lanes)
        rate_per_s = busy * rng.uniform(0.05, 0.13) * lanes * (1.6 if plan.is_freeway else 1.0)
        weights = rng.dirichlet(np.full(max(len(routes[entry]), 1), 2.0))
        for depart in _departures(rng, rate_per_s, duration_s):
            mode = str(rng.choice(list(MODE_SHARE), p=list(MODE_SHARE.values())))
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
    """Times of a Poisson process, to a tenth of a second."""
    count = int(rng.poisson(rate_per_s * duration_s))
    return [round(float(time), 1) for time in np.sort(rng.uniform(0, duration_s, count))]


def _routes(
    network: RoadNetwork, entry: str, exits: Sequence[str], vehicle_class: VehicleClass
) -> list[tuple[str, ...]]:
    """The way with the fewest edges from the entry to each exit that can be reached."""
    came_from: dict[str, str | None] = {entry: None}
    frontier = [entry]
    while frontier:
        reached = []
        for edge in frontier:
            for after in network.successors_of_edge(edge, vehicle_class):
                if after not in came_from:
                    came_from[after] = edge
                    reached.append(after)
        frontier = reached
    return [_way_to(goal, came_from) for goal in exits if goal in came_from]


def _way_to(goal: str, came_from: Mapping[str, str | None]) -> tuple[str, ...]:
    """The edges from the start of the search to the goal."""
    way = [goal]
    while (before := came_from[way[-1]]) is not None:
        way.append(before)
    return tuple(reversed(way))


def _element(trip: Trip) -> ElementTree.Element:
    if trip.type.mode == "pedestrian":
        person = ElementTree.Element(
            "person", {"id": trip.id, "type": trip.type.name, "depart": f"{trip.depart_s:.1f}", "departPos": "random"}
        )
        person.append(ElementTree.Element("walk", {"from": trip.edges[0], "to": trip.edges[1], "arrivalPos": "random"}))
        return person
    attributes = {
        "id": trip.id,
        "type": trip.type.name,
        "depart": f"{trip.depart_s:.1f}",
        "departLane": "best",
        "departSpeed": "desired",
        "departPos": "base",
    }
    vehicle = ElementTree.Element("vehicle", attributes)
    vehicle.append(ElementTree.Element("route", {"edges": " ".join(trip.edges)}))
    return vehicle
