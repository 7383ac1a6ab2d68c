"""From a route (sections of parallel lanes) to a path along lane centrelines, with lane changes where the route asks.

Scenes without a route (Waymo's) get the *expert route*: the lanes that the recorded ego then drove on. It tells a
planner which way to turn, as nuPlan's routes do, and nothing of when or how.
"""

import heapq
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int

from waycode.driving.lane_strips import UNKNOWN_LANE_WIDTH_M
from waycode.driving.path import Path, Strand, path_along
from waycode.scene import Lanes, Route, Scene
from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import arclengths, interpolate, project, resample
from waycode.scene.lane_graph import MAP_MATCHING, ROUTE_START, LaneGraph

CHANGE_COST, HOP_COST, OFFSET_COST_1PM = 20.0, 0.1, 40.0  # a change is worth half a metre of being off a lane
CHANGE_DURATION_S, LEAST_CHANGE_M = 4.0, 20.0
STRAIGHT_ON_M = 150.0  # how far a path goes on, over the map's lanes and then straight, where the route ends
BEFORE_M = 30.0

EXPERT_SPACING_M = 2.0
SUCCESSOR_COST, NEIGHBOUR_COST, JUMP_COST = 0.5, 4.0, 30.0


def route_path(scene: Scene, *, position_m: Float[np.ndarray, " 2"], heading_rad: float, speed_mps: float) -> Path:
    """The path from here along the scene's route; without a route along the lane under the car, or else straight on."""
    chain = lanes_ahead(scene, position_m=position_m, heading_rad=heading_rad)
    return path_on(scene.map.lanes, chain, position_m=position_m, heading_rad=heading_rad, speed_mps=speed_mps)


def path_on(
    lanes: Lanes, chain: list[int], *, position_m: Float[np.ndarray, " 2"], heading_rad: float, speed_mps: float
) -> Path:
    """The path from here over a chain of lanes (see `lanes_ahead`); straight on if that is empty."""
    if not chain:
        ahead = np.array([np.cos(heading_rad), np.sin(heading_rad)])
        return path_along(_unknown(np.stack([position_m, position_m + 2 * STRAIGHT_ON_M * ahead])), before_m=BEFORE_M)
    return path_along(
        _blended(lanes, chain, position_m=position_m, speed_mps=speed_mps), before_m=BEFORE_M, beyond_m=STRAIGHT_ON_M
    )


def lanes_ahead(scene: Scene, *, position_m: Float[np.ndarray, " 2"], heading_rad: float) -> list[int]:
    """The lanes to drive on in turn: along the route, or from the lane under the car, and then straight on."""
    graph, route = scene.map.lanes.graph, scene.route
    wanted = np.arange(len(graph)) if route is None else route.lanes
    starts = _starts(graph, wanted, position_m, heading_rad) if len(wanted) else {}
    if not starts:
        return []
    chain = [min(starts, key=lambda lane: starts[lane])] if route is None else _cheapest_chain(route, graph, starts)
    return graph.extend_straight(chain, length_m=STRAIGHT_ON_M)


def expert_route(scene: Scene) -> Route | None:
    """The lanes on which the recorded ego drives from the current step on: the most plausible way through the map."""
    ego, lanes = scene.tracks.ego_index, scene.map.lanes
    if ego is None or len(lanes) == 0:
        return None
    steps = np.flatnonzero(scene.tracks.valid[ego, scene.current_step :]) + scene.current_step
    position = scene.tracks.position_m[ego, steps].astype(np.float64)
    travelled = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(position, axis=0), axis=1))])
    _, kept = np.unique((travelled / EXPERT_SPACING_M).astype(np.int64), return_index=True)
    visited = _match_lanes(lanes.graph, position[kept], scene.tracks.heading_rad[ego, steps[kept]].astype(np.float64))
    return _as_route(lanes.graph, visited) if visited else None


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
        steps = [(after, HOP_COST) for after in graph.successors[lane]]
        steps += [(other, CHANGE_COST + HOP_COST * section[lane]) for other in graph.beside[lane]]
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
    return {lane: OFFSET_COST_1PM * offset_m for lane, offset_m in found.items() if offset_m <= most_m}


def _blended(lanes: Lanes, chain: list[int], *, position_m: Float[np.ndarray, " 2"], speed_mps: float) -> Strand:
    """Centrelines end to end; where the chain goes to a neighbour, the line goes over to it smoothly."""
    runs = [[chain[0]]]
    for before, after in pairwise(chain):
        if after in lanes.graph.successors[before]:
            runs[-1].append(after)
        else:
            runs.append([after])
    line = strand_of(lanes, runs[0])
    from_m, offset_m = (float(values[0]) for values in project(position_m[None], line.points_m)[:2])
    for index, run in enumerate(runs[1:]):
        other = strand_of(lanes, run)
        along_other_m, offset_other_m = (float(values[0]) for values in project(position_m[None], other.points_m)[:2])
        # A car that is on its way between the two lanes goes on from there.
        between = index == 0 and offset_m * offset_other_m < 0 and along_other_m > 0
        share = abs(offset_m) / (abs(offset_m) + abs(offset_other_m)) if between else 0.0
        line, from_m = _changed(line, other, from_m=from_m, speed_mps=speed_mps, start_share=share)
    return line


def _changed(
    one: Strand, other: Strand, *, from_m: float, speed_mps: float, start_share: float
) -> tuple[Strand, float]:
    """A line that leaves `one` at `from_m` and is on `other` some seconds later, and where on it that is.

    Where `other` begins only further on (a pocket for turning left), it is left there.
    """
    along, along_other = arclengths(one.points_m), arclengths(other.points_m)
    at = project(one.points_m, other.points_m)[0]
    beside_m = float(along[(at > 0).argmax()])
    start = min(max(from_m, beside_m), float(along[-1]) - 5.0)
    length = float(np.clip(CHANGE_DURATION_S * speed_mps, LEAST_CHANGE_M, max(5.0, 0.8 * (along[-1] - start))))
    weight = np.clip((along - start) / length, 0, 1)
    weight = start_share + (1 - start_share) * weight * weight * (3 - 2 * weight)
    changing = along < start + length
    left, share = one[changing], weight[changing, None]
    mixed = (1 - share) * left.points_m + share * interpolate(other.points_m, at[changing])
    head = Strand(mixed, left.limit_mps, left.limit_known, left.half_width_m, left.in_junction)
    return Strand.joined([head, other[along_other > at[changing].max(initial=0.0) + 0.1]]), start + length


def strand_of(lanes: Lanes, run: list[int]) -> Strand:
    """The centrelines of lanes that continue each other, sampled every metre."""
    parts = []
    for lane in run:
        points = resample(lanes.centrelines[lane].astype(np.float64), spacing_m=1.0)
        width = float(lanes.width_m[lane]) if lanes.width_known[lane] else UNKNOWN_LANE_WIDTH_M
        count = len(points)
        parts.append(
            Strand(
                points,
                np.full(count, float(lanes.speed_limit_mps[lane])),
                np.full(count, bool(lanes.speed_limit_known[lane])),
                np.full(count, width / 2),
                np.full(count, bool(lanes.in_junction[lane])),
            )
        )
    return Strand.joined(parts)


def _unknown(points_m: Float[np.ndarray, "q 2"]) -> Strand:
    """A line off any lane."""
    count = len(points_m)
    none = np.zeros(count, np.bool_)
    return Strand(points_m, np.zeros(count), none, np.full(count, UNKNOWN_LANE_WIDTH_M / 2), none)


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
    ways = []
    for before, (cost, chain) in best.items():
        if before == lane:
            ways.append((cost, chain))
        elif (onward := graph.lanes_between(before, lane)) is not None:
            ways.append((cost + SUCCESSOR_COST, (*chain, *onward)))
        else:
            ways.append((cost + (NEIGHBOUR_COST if lane in graph.beside[before] else JUMP_COST), (*chain, lane)))
    return min(ways, default=(0.0, (lane,)))


def _as_route(graph: LaneGraph, visited: list[int]) -> Route:
    """Lanes in the order of driving; neighbours share a section."""
    chosen, sections = [visited[0]], [0]
    for lane in visited[1:]:
        if lane not in chosen:
            sections.append(sections[-1] + int(lane not in graph.beside[chosen[-1]]))
            chosen.append(lane)
    return Route(lanes=np.array(chosen, np.int32), sections=np.array(sections, np.int32))
