"""From a route (sections of parallel lanes) to a path along lane centrelines, with lane changes where the route asks.

Scenes without a route (Waymo's) get the *expert route*: the lanes that the recorded ego then drove on. It tells a
planner which way to turn, as nuPlan's routes do, and nothing of when or how.
"""

import heapq
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int
from scipy.spatial import cKDTree

from waycode.driving.lane_strips import UNKNOWN_LANE_WIDTH_M
from waycode.driving.path import Path, Strand, path_along
from waycode.scene import Lanes, Route, Scene
from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import arclengths, directions, interpolate, project, resample

MISALIGNED_RAD = np.radians(60)
CHANGE_COST, HOP_COST, OFFSET_COST_1PM = 20.0, 0.1, 40.0  # a change is worth half a metre of being off a lane
CHANGE_DURATION_S, LEAST_CHANGE_M = 4.0, 20.0
STRAIGHT_ON_M = 150.0  # how far a path goes on, over the map's lanes and then straight, where the route ends
BEFORE_M = 30.0

EXPERT_SPACING_M, EXPERT_REACH_M = 2.0, 3.0
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
    lanes = scene.map.lanes
    wanted = np.arange(len(lanes)) if scene.route is None else scene.route.lanes
    chain = _chain(lanes, scene.route, wanted, position_m, heading_rad) if len(wanted) else []
    return prolonged(lanes, chain) if chain else []


def expert_route(scene: Scene) -> Route | None:
    """The lanes on which the recorded ego drives from the current step on: the most plausible way through the map."""
    ego, lanes = scene.tracks.ego_index, scene.map.lanes
    if ego is None or len(lanes) == 0:
        return None
    steps = np.flatnonzero(scene.tracks.valid[ego, scene.current_step :]) + scene.current_step
    position = scene.tracks.position_m[ego, steps].astype(np.float64)
    travelled = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(position, axis=0), axis=1))])
    _, kept = np.unique((travelled / EXPERT_SPACING_M).astype(np.int64), return_index=True)
    visited = _most_plausible(lanes, position[kept], scene.tracks.heading_rad[ego, steps[kept]].astype(np.float64))
    return _as_route(lanes, visited) if visited else None


def _chain(
    lanes: Lanes,
    route: Route | None,
    wanted: Int[np.ndarray, " R"],
    position_m: Float[np.ndarray, " 2"],
    heading_rad: float,
) -> list[int]:
    """The lanes to drive on in turn, with the fewest lane changes, as far along the route as it can be followed."""
    section = {int(lane): 0 for lane in wanted}
    if route is not None:
        section = {int(lane): int(index) for lane, index in zip(route.lanes, route.sections, strict=True)}
    starts = _starts(lanes, wanted, position_m, heading_rad)
    if route is None:
        return [min(starts, key=lambda lane: starts[lane])] if starts else []
    queue: list[tuple[float, int, tuple[int, ...]]] = [(cost, lane, (lane,)) for lane, cost in starts.items()]
    heapq.heapify(queue)
    reached: dict[int, tuple[float, tuple[int, ...]]] = {}
    while queue:
        cost, lane, chain = heapq.heappop(queue)
        if lane in reached:
            continue
        reached[lane] = (cost, chain)
        beside = [int(b) for pairs in (lanes.left_neighbours, lanes.right_neighbours) for a, b in pairs if a == lane]
        # A change is the cheaper the earlier it is: late ones end in front of a solid line.
        steps = [(after, HOP_COST) for after in lanes.successors_of(lane)]
        steps += [(other, CHANGE_COST + HOP_COST * section[lane]) for other in beside]
        for other, price in steps:
            if other in section and section[other] >= section[lane] and other not in reached:
                heapq.heappush(queue, (cost + price, other, (*chain, other)))
    if not reached:
        return []
    last = max(section[lane] for lane in reached)
    return list(min(chain_of for lane, chain_of in reached.items() if section[lane] == last)[1])


def _starts(
    lanes: Lanes, wanted: Int[np.ndarray, " R"], position_m: Float[np.ndarray, " 2"], heading_rad: float
) -> dict[int, float]:
    """Lanes on which the car may be now, each with the price of starting there."""
    found: dict[int, float] = {}
    for lane in wanted:
        line = lanes.centrelines[int(lane)].astype(np.float64)
        _, offset, segment = project(position_m[None], line)
        direction = float(directions(line)[segment[0]])
        if abs(float(wrap_angle(np.array(direction - heading_rad)))) < MISALIGNED_RAD:
            found[int(lane)] = OFFSET_COST_1PM * abs(float(offset[0]))
    nearest = min(found.values(), default=0.0)
    # Lanes of other sections, far ahead or behind, are farther away than the lanes beside the car.
    reach = nearest + OFFSET_COST_1PM * UNKNOWN_LANE_WIDTH_M * 1.2
    return {lane: cost for lane, cost in found.items() if cost <= reach}


def prolonged(lanes: Lanes, chain: list[int]) -> list[int]:
    """The chain and the lanes that go straightest on after it."""
    chain, length = list(chain), 0.0
    while length < STRAIGHT_ON_M:
        end = directions(lanes.centrelines[chain[-1]])[-1]
        after = [lane for lane in lanes.successors_of(chain[-1]) if lane not in chain]
        if not after:
            break
        onward = np.array([directions(lanes.centrelines[lane])[-1] for lane in after])
        chain.append(after[int(np.abs(wrap_angle(onward - end)).argmin())])
        length += float(np.linalg.norm(np.diff(lanes.centrelines[chain[-1]], axis=0), axis=1).sum())
    return chain


def _blended(lanes: Lanes, chain: list[int], *, position_m: Float[np.ndarray, " 2"], speed_mps: float) -> Strand:
    """Centrelines end to end; where the chain goes to a neighbour, the line goes over to it smoothly."""
    followed = set(map(tuple, lanes.successors.tolist()))
    runs = [[chain[0]]]
    for before, after in pairwise(chain):
        if (before, after) in followed:
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


def _most_plausible(
    lanes: Lanes, position_m: Float[np.ndarray, "n 2"], heading_rad: Float[np.ndarray, " n"]
) -> list[int]:
    """The lanes that a drive through these poses was on, in turn: least offsets and fewest jumps in the lane graph."""
    dense = [resample(line.astype(np.float64), spacing_m=1.0) for line in lanes.centrelines.as_list()]
    lane_of = np.repeat(np.arange(len(dense)), [len(line) for line in dense])
    angle = np.concatenate([directions(line) for line in dense])
    points = np.concatenate(dense)
    near = cKDTree(points).query_ball_point(position_m, EXPERT_REACH_M)
    hops, beside = _hops(lanes)
    best: dict[int, tuple[float, tuple[int, ...]]] = {}
    for place, heading, indices in zip(position_m, heading_rad, near, strict=True):
        offsets: dict[int, float] = {}
        for index in indices:
            if abs(float(wrap_angle(np.array(angle[index] - heading)))) < MISALIGNED_RAD:
                squared = float(((points[index] - place) ** 2).sum())
                offsets[int(lane_of[index])] = min(squared, offsets.get(int(lane_of[index]), np.inf))
        if offsets:
            best = {lane: _arrived(lane, squared, best, hops, beside) for lane, squared in offsets.items()}
    return list(min(best.values())[1]) if best else []


def _arrived(
    lane: int,
    squared_m2: float,
    best: dict[int, tuple[float, tuple[int, ...]]],
    hops: dict[tuple[int, int], tuple[int, ...]],
    beside: set[tuple[int, int]],
) -> tuple[float, tuple[int, ...]]:
    """The cheapest way to be on this lane now, from wherever the drive was one sample before."""
    ways = []
    for before, (cost, chain) in best.items():
        if before == lane:
            ways.append((cost, chain))
        elif (before, lane) in hops:
            ways.append((cost + SUCCESSOR_COST, (*chain, *hops[before, lane])))
        else:
            ways.append((cost + (NEIGHBOUR_COST if (before, lane) in beside else JUMP_COST), (*chain, lane)))
    cost, chain = min(ways, default=(0.0, (lane,)))
    return cost + squared_m2, chain


def _hops(lanes: Lanes) -> tuple[dict[tuple[int, int], tuple[int, ...]], set[tuple[int, int]]]:
    """Lanes that are reached by driving on, over at most one short lane in between, and pairs of neighbours."""
    pairs = lanes.successors.tolist()
    after: dict[int, list[int]] = {}
    for one, other in pairs:
        after.setdefault(one, []).append(other)
    hops: dict[tuple[int, int], tuple[int, ...]] = {
        (one, third): (second, third) for one, second in pairs for third in after.get(second, [])
    }
    hops |= {(one, other): (other,) for one, other in pairs}
    beside = {(a, b) for relation in (lanes.left_neighbours, lanes.right_neighbours) for a, b in relation.tolist()}
    return hops, beside


def _as_route(lanes: Lanes, visited: list[int]) -> Route:
    """Lanes in the order of driving; neighbours share a section."""
    _, beside = _hops(lanes)
    chosen, sections = [visited[0]], [0]
    for lane in visited[1:]:
        if lane not in chosen:
            sections.append(sections[-1] + int((chosen[-1], lane) not in beside))
            chosen.append(lane)
    return Route(lanes=np.array(chosen, np.int32), sections=np.array(sections, np.int32))
