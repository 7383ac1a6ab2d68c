"""From a route (sections of parallel lanes) to a path along lane centrelines, with the lane changes it requires.

Scenes without a route (Waymo's) get the *expert route*: the lanes that the recorded ego drove on. Like
nuPlan's routes it contains the turns to take, but not when or how to drive them.
"""

import heapq
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int, Shaped

from waycode.driving.path import Path, lane_rows, path_rows, smooth_path
from waycode.scene import Lanes, Route, Scene
from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import arclengths, forward, interpolate, project
from waycode.scene.lane_graph import MAP_MATCHING, ROUTE_START, LaneGraph

STRAIGHT_ON_M = 150.0  # length of a path beyond the route's end, over the map's lanes and then straight
_BEFORE_M = 30.0  # length of a path before its first lane: the vehicle may be behind it
# Costs of a chain of lanes along a route: a lane change costs as much as starting half a metre off a lane.
_CHANGE_COST, _STEP_COST, _OFFSET_COST_1PM = 20.0, 0.1, 40.0
_CHANGE_DURATION_S, _LEAST_CHANGE_M = 4.0, 20.0
# Costs of map matching, in m^2 of offset: a lane change is less likely than a successor, a jump least of all.
_MATCH_SUCCESSOR_COST, _MATCH_NEIGHBOUR_COST, _MATCH_JUMP_COST = 0.5, 4.0, 30.0
_MATCH_SPACING_M = 2.0  # between the poses that are matched


def route_path(scene: Scene, *, position_m: Float[np.ndarray, " 2"], heading_rad: float, speed_mps: float) -> Path:
    """The path of a vehicle along the scene's route; without a route along its lane, and without a lane straight on.

    Args:
        scene: gives the map and the route.
        position_m: of the vehicle, in the scene frame.
        heading_rad: of the vehicle.
        speed_mps: of the vehicle; sets the length of lane changes.
    """
    chain = lanes_ahead(scene, position_m=position_m, heading_rad=heading_rad)
    return path_on(scene.map.lanes, chain, position_m=position_m, heading_rad=heading_rad, speed_mps=speed_mps)


def end_of(scene: Scene, chain: list[int]) -> Float[np.ndarray, " 2"] | None:
    """The end of the route, or without a route of the known map, on a chain of lanes (`lanes_ahead`); None without
    lanes."""
    if not chain:
        return None
    on_route = chain if scene.route is None else [lane for lane in chain if lane in scene.route.lanes]
    return scene.map.lanes.centrelines[on_route[-1]][-1].astype(np.float64)


def path_on(
    lanes: Lanes, chain: list[int], *, position_m: Float[np.ndarray, " 2"], heading_rad: float, speed_mps: float
) -> Path:
    """The path of a vehicle over a chain of lanes (see `lanes_ahead`); straight on if that is empty."""
    if not chain:
        ahead_m = 2 * STRAIGHT_ON_M * forward(np.array(heading_rad))
        return smooth_path(path_rows(np.stack([position_m, position_m + ahead_m])), before_m=_BEFORE_M)
    rows = _blend_lane_changes(lanes, chain, position_m=position_m, speed_mps=speed_mps)
    return smooth_path(rows, before_m=_BEFORE_M, beyond_m=STRAIGHT_ON_M)


def lanes_ahead(scene: Scene, *, position_m: Float[np.ndarray, " 2"], heading_rad: float) -> list[int]:
    """The lanes to drive on in turn: along the route, or from the vehicle's lane; then the straightest successors."""
    graph, route = scene.map.lanes.graph, scene.route
    wanted = np.arange(len(graph)) if route is None else route.lanes
    starts = _starts(graph, wanted, position_m, heading_rad) if len(wanted) else {}
    if not starts:
        return []
    chain = [min(starts, key=lambda lane: starts[lane])] if route is None else _cheapest_chain(route, graph, starts)
    return graph.extend_straight(chain, length_m=STRAIGHT_ON_M)


def expert_route(scene: Scene) -> Route | None:
    """The lanes that the recorded ego drives on from the current step on (map matching), then the straightest ones
    after them: the end of a recording is no destination. None without ego or lanes."""
    ego, lanes = scene.tracks.ego_index, scene.map.lanes
    if ego is None or len(lanes) == 0:
        return None
    steps = np.flatnonzero(scene.tracks.valid[ego, scene.current_step :]) + scene.current_step
    position = scene.tracks.position_m[ego, steps].astype(np.float64)
    _, kept = np.unique((arclengths(position) / _MATCH_SPACING_M).astype(np.int64), return_index=True)
    visited = _match_lanes(lanes.graph, position[kept], scene.tracks.heading_rad[ego, steps[kept]].astype(np.float64))
    if not visited:
        return None
    return _as_route(lanes.graph, lanes.graph.extend_straight(visited, length_m=STRAIGHT_ON_M))


def _cheapest_chain(route: Route, graph: LaneGraph, starts: dict[int, float]) -> list[int]:
    """The lanes to drive on in turn, with the fewest lane changes, as far along the route as it can be followed.

    Args:
        route: the route.
        graph: of the map's lanes.
        starts: lanes of the route to start from, each with its cost (see `_starts`).
    """
    section = {int(lane): int(index) for lane, index in zip(route.lanes, route.sections, strict=True)}
    queue: list[tuple[float, int, tuple[int, ...]]] = [(cost, lane, (lane,)) for lane, cost in starts.items()]
    heapq.heapify(queue)
    reached: dict[int, tuple[float, tuple[int, ...]]] = {}
    while queue:
        cost, lane, chain = heapq.heappop(queue)
        if lane in reached:
            continue
        reached[lane] = (cost, chain)
        # A change is cheaper the earlier it is: a late one ends in front of a solid line.
        steps = [(after, _STEP_COST) for after in graph.successors[lane]]
        steps += [(other, _CHANGE_COST + _STEP_COST * section[lane]) for other in graph.beside[lane]]
        for other, price in steps:
            if other in section and section[other] >= section[lane] and other not in reached:
                heapq.heappush(queue, (cost + price, other, (*chain, other)))
    if not reached:
        return []
    last = max(section[lane] for lane in reached)
    return list(min(chain_of for lane, chain_of in reached.items() if section[lane] == last)[1])


def _starts(
    graph: LaneGraph, wanted: Int[np.ndarray, " R"], position_m: Float[np.ndarray, " 2"], heading_rad: float
) -> dict[int, float]:
    """Those of the wanted lanes that the vehicle may be on now, each with the cost of starting there."""
    distance, lane_rad = graph.distances(position_m)
    aligned = np.abs(wrap_angle(lane_rad - heading_rad)) < ROUTE_START.angle_rad
    found = {int(lane): float(distance[lane]) for lane in wanted if aligned[lane]}
    # Lanes of other sections, far ahead or behind, are further away than the lanes beside the vehicle.
    most_m = min(found.values(), default=0.0) + ROUTE_START.distance_m
    return {lane: _OFFSET_COST_1PM * offset_m for lane, offset_m in found.items() if offset_m <= most_m}


def _blend_lane_changes(
    lanes: Lanes, chain: list[int], *, position_m: Float[np.ndarray, " 2"], speed_mps: float
) -> Shaped[np.ndarray, " q"]:
    """The centrelines of the chain end to end, with a smooth transition wherever it changes to a neighbour lane."""
    runs = [[chain[0]]]
    for before, after in pairwise(chain):
        if after in lanes.graph.successors[before]:
            runs[-1].append(after)
        else:
            runs.append([after])
    line = lane_rows(lanes, runs[0])
    from_m, offset_m = (float(values[0]) for values in project(position_m[None], line["points_m"])[:2])
    for index, run in enumerate(runs[1:]):
        other = lane_rows(lanes, run)
        along_other_m, offset_other_m = (float(value[0]) for value in project(position_m[None], other["points_m"])[:2])
        # A vehicle between the first two lanes has begun the change already: the path starts where it is.
        between = index == 0 and offset_m * offset_other_m < 0 and along_other_m > 0
        share = abs(offset_m) / (abs(offset_m) + abs(offset_other_m)) if between else 0.0
        line, from_m = _change_lane(line, other, from_m=from_m, speed_mps=speed_mps, start_share=share)
    return line


def _change_lane(
    one: Shaped[np.ndarray, " q"],
    other: Shaped[np.ndarray, " r"],
    *,
    from_m: float,
    speed_mps: float,
    start_share: float,
) -> tuple[Shaped[np.ndarray, " s"], float]:
    """A line that leaves `one` and joins `other`, and the arclength at which it has joined.

    Args:
        one, other: arrays of `PATH_ROW`.
        from_m: arclength of `one` at which the change starts; later if `other` begins only there (a turn pocket).
        speed_mps: sets the length of the change.
        start_share: completed share of the change at its start, from 0 (on `one`) to 1 (on `other`).
    """
    along, along_other = arclengths(one["points_m"]), arclengths(other["points_m"])
    at = project(one["points_m"], other["points_m"])[0]
    beside_m = float(along[(at > 0).argmax()])
    start = min(max(from_m, beside_m), float(along[-1]) - 5.0)
    length = float(np.clip(_CHANGE_DURATION_S * speed_mps, _LEAST_CHANGE_M, max(5.0, 0.8 * (along[-1] - start))))
    weight = np.clip((along - start) / length, 0, 1)
    weight = start_share + (1 - start_share) * weight * weight * (3 - 2 * weight)
    changing = along < start + length
    head, share = one[changing], weight[changing, None]
    head["points_m"] = (1 - share) * head["points_m"] + share * interpolate(other["points_m"], at[changing])
    rest = other[along_other > at[changing].max(initial=0.0) + 0.1]
    return np.concatenate([head, rest]), start + length


def _match_lanes(
    graph: LaneGraph, position_m: Float[np.ndarray, "n 2"], heading_rad: Float[np.ndarray, " n"]
) -> list[int]:
    """Map matching: the sequence of lanes with the least squared offsets from these poses and the fewest jumps."""
    best: dict[int, tuple[float, tuple[int, ...]]] = {}  # per lane: the cheapest sequence that ends on it
    for distances in graph.lanes_near(position_m, heading_rad, tolerance=MAP_MATCHING):
        if distances:
            best = {lane: _cheapest_arrival(graph, lane, best) for lane in distances}
            best = {lane: (cost + distances[lane] ** 2, chain) for lane, (cost, chain) in best.items()}
    return list(min(best.values())[1]) if best else []


def _cheapest_arrival(
    graph: LaneGraph, lane: int, best: dict[int, tuple[float, tuple[int, ...]]]
) -> tuple[float, tuple[int, ...]]:
    """The cheapest sequence that ends on `lane`, from those that end one sample earlier."""
    arrivals = []
    for before, (cost, chain) in best.items():
        if before == lane:
            arrivals.append((cost, chain))
        elif (onward := graph.lanes_between(before, lane)) is not None:
            arrivals.append((cost + _MATCH_SUCCESSOR_COST, (*chain, *onward)))
        else:
            price = _MATCH_NEIGHBOUR_COST if lane in graph.beside[before] else _MATCH_JUMP_COST
            arrivals.append((cost + price, (*chain, lane)))
    return min(arrivals, default=(0.0, (lane,)))


def _as_route(graph: LaneGraph, visited: list[int]) -> Route:
    """A route over lanes in driving order; neighbours share a section."""
    chosen, sections = [visited[0]], [0]
    for lane in visited[1:]:
        if lane not in chosen:
            sections.append(sections[-1] + int(lane not in graph.beside[chosen[-1]]))
            chosen.append(lane)
    return Route(lanes=np.array(chosen, np.int32), sections=np.array(sections, np.int32))
