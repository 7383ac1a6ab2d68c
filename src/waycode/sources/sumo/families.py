"""Ten families of random road networks. Each is a pure function of a random number generator."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

import numpy as np

from waycode.scene.frames import rotate
from waycode.sources.sumo.plain import (
    POINT_SPACING_M,
    LinePoints,
    NetworkBuilder,
    NodeType,
    PlainNetwork,
    RoadProfile,
    SignalTiming,
    VehicleClass,
    bezier,
    offset_line,
    road_name,
    straight_line,
    winding_line,
)

_CENTRE = "centre"
_Rng = np.random.Generator
_Turns = frozenset[tuple[str, str]]


class Family(StrEnum):
    """Kinds of generated road networks."""

    ALL_WAY_STOP = "all_way_stop"
    TWO_WAY_STOP = "two_way_stop"
    SIGNALS = "signals"
    T_JUNCTION = "t_junction"
    T_JUNCTION_NO_LEFT = "t_junction_no_left"
    ROUNDABOUT = "roundabout"
    ARTERIAL = "arterial"
    ON_RAMP = "on_ramp"
    CURVED_ROAD = "curved_road"
    RANDOM_GRID = "random_grid"


@dataclass(frozen=True, kw_only=True)
class NetworkPlan:
    """A network to build, and the edges (sorted ids) where its traffic starts, ends and walks."""

    family: Family
    network: PlainNetwork
    entry_edges: tuple[str, ...]  # where vehicles appear
    exit_edges: tuple[str, ...]  # where vehicles disappear
    sidewalk_edges: tuple[str, ...]  # where pedestrians walk
    bike_edges: tuple[str, ...]  # where bicycles ride, in a separate lane or with the cars
    forbidden_turns: tuple[tuple[str, str], ...]  # (edge, edge) that the geometry would allow
    is_freeway: bool  # whether lanes are of type FREEWAY


def plan_network(family: Family, rng: _Rng) -> NetworkPlan:
    """Draws a network of the family; the same state of `rng` always gives the same network."""
    builder = _BUILDERS[family](rng)
    timing = SignalTiming(cycle_s=int(rng.integers(70, 101)), yellow_s=3, left_green_s=int(rng.integers(6, 11)))
    network = builder.build(rotation_rad=float(rng.uniform(-np.pi, np.pi)), signal_timing=timing)
    entered = {link.to_edge for link in network.connections}
    left = {link.from_edge for link in network.connections}
    edges = sorted(network.edges, key=lambda edge: edge.id)
    return NetworkPlan(
        family=family,
        network=network,
        entry_edges=tuple(edge.id for edge in edges if edge.id not in entered),
        exit_edges=tuple(edge.id for edge in edges if edge.id not in left),
        sidewalk_edges=tuple(edge.id for edge in edges if edge.has_sidewalk),
        bike_edges=tuple(edge.id for edge in edges if any(VehicleClass.BICYCLE in lane.allowed for lane in edge.lanes)),
        forbidden_turns=tuple(sorted(builder.forbidden_turns)),
        is_freeway=family == Family.ON_RAMP,
    )


def _bike_lane_width(rng: _Rng) -> float:
    """One width for all roads of a network (0 in most), because bicycles cannot change between lane widths."""
    return float(np.round(rng.uniform(1.5, 1.9), 2)) if rng.random() < 0.3 else 0.0


def _street(
    rng: _Rng,
    *,
    speed_mps: tuple[float, float],
    lanes: Sequence[int] = (1, 1, 2),
    bike_lane_m: float = 0.0,
    priority: int = 1,
) -> RoadProfile:
    """An urban road. `lanes` are equally likely lane counts, `speed_mps` is the range of the limit."""
    return RoadProfile(
        num_lanes=int(rng.choice(lanes)),
        lane_width_m=float(np.round(rng.uniform(3.0, 3.7), 2)),
        speed_mps=float(np.round(rng.uniform(*speed_mps), 1)),
        bike_lane_m=bike_lane_m,
        sidewalk_m=float(np.round(rng.uniform(1.8, 2.6), 2)),
        priority=priority,
    )


def _arm_line(rng: _Rng, angle_rad: float) -> LinePoints:
    """The centreline of a road that ends at (0, 0) and comes from the direction `angle_rad`, possibly with a bend."""
    bends = rng.random() < 0.6
    pieces = [
        (float(rng.uniform(38, 60)), 0.0),
        (float(rng.uniform(40, 90)), float(rng.uniform(-0.6, 0.6)) * bends),
        (float(rng.uniform(50, 90)), 0.0),
    ]
    return rotate(winding_line(pieces), angle_rad)[::-1]


def _star(
    rng: _Rng,
    profiles: Sequence[RoadProfile],
    *,
    kind: NodeType,
    pockets: bool = False,
    forbidden: _Turns = frozenset(),
) -> NetworkBuilder:
    """One junction with an arm per profile, counter-clockwise at roughly right angles.

    Args:
        rng: random number generator.
        profiles: cross-section of each arm.
        kind: type of the junction.
        pockets: whether arms get a pocket for left turns.
        forbidden: turns (from edge, to edge) that are not connected.
    """
    builder = NetworkBuilder()
    builder.add_node(_CENTRE, np.zeros(2), kind=kind, radius_m=float(rng.uniform(7, 12)))
    for index, profile in enumerate(profiles):
        line_m = _arm_line(rng, index * np.pi / 2 + float(rng.uniform(-0.24, 0.24)))
        builder.add_node(f"arm{index}", line_m[0], kind=NodeType.DEAD_END)
        pocket_m = float(rng.uniform(60, 85)) if pockets else 0.0
        builder.add_road(f"arm{index}", _CENTRE, line_m=line_m, profile=profile, end_pocket_m=pocket_m)
    builder.connect(_CENTRE, forbidden=forbidden)
    return builder


def _all_way_stop(rng: _Rng) -> NetworkBuilder:
    bikes_m = _bike_lane_width(rng)
    roads = [_street(rng, speed_mps=(8.0, 13.0), bike_lane_m=bikes_m) for _ in range(2)]
    return _star(rng, roads * 2, kind=NodeType.ALL_WAY_STOP)


def _two_way_stop(rng: _Rng) -> NetworkBuilder:
    bikes_m = _bike_lane_width(rng)
    main = _street(rng, speed_mps=(10.0, 16.0), bike_lane_m=bikes_m, priority=5)
    side = _street(rng, speed_mps=(8.0, 12.0), bike_lane_m=bikes_m, lanes=(1,))
    return _star(rng, [main, side] * 2, kind=NodeType.PRIORITY_STOP)


def _signals(rng: _Rng) -> NetworkBuilder:
    bikes_m = _bike_lane_width(rng)
    main = _street(rng, speed_mps=(10.0, 16.0), bike_lane_m=bikes_m, lanes=(1, 2, 2, 3))
    side = _street(rng, speed_mps=(9.0, 14.0), bike_lane_m=bikes_m)
    return _star(rng, [main, side] * 2, kind=NodeType.SIGNALS, pockets=True)


def _t_junction(rng: _Rng, *, left_allowed: bool = True) -> NetworkBuilder:
    """Arms 0 and 2 are the through road, arm 1 is the stem.

    Without left turns, traffic leaves the stem to the right only. In half of these networks it enters the stem by
    right turns only, too.
    """
    bikes_m = _bike_lane_width(rng)
    through = _street(rng, speed_mps=(9.0, 15.0), bike_lane_m=bikes_m, priority=5)
    stem = _street(rng, speed_mps=(8.0, 12.0), bike_lane_m=bikes_m, lanes=(1, 1, 2) if left_allowed else (1,))
    # Arms are counted counter-clockwise: seen from the stem, arm 0 is on the left.
    turns = [
        (road_name("arm1", _CENTRE), road_name(_CENTRE, "arm0")),
        (road_name("arm2", _CENTRE), road_name(_CENTRE, "arm1")),
    ]
    forbidden = frozenset() if left_allowed else frozenset(turns[: int(rng.integers(1, 3))])
    kind = NodeType.PRIORITY_STOP if rng.random() < 0.5 else NodeType.PRIORITY
    return _star(rng, [through, stem, through], kind=kind, forbidden=forbidden)


def _roundabout(rng: _Rng) -> NetworkBuilder:
    num_arms = int(rng.integers(3, 6))
    radius_m = float(rng.uniform(15, 18)) + 4.5 * (num_arms - 3)  # of the island
    road = _street(rng, lanes=(1,), speed_mps=(8.0, 13.0))
    ring = replace(road, lane_width_m=road.lane_width_m + 0.3, priority=10)
    builder = NetworkBuilder()
    arms_rad = 2 * np.pi * np.arange(num_arms) / num_arms + rng.uniform(-0.08, 0.08, num_arms)
    opening_rad = 6.0 / radius_m  # between the axis of an arm and its entry or exit
    openings = [(index, side) for index in range(num_arms) for side in ("out", "in")]  # in order along the ring
    places_rad = (arms_rad[:, None] + np.array([-opening_rad, opening_rad])).ravel()
    for (index, side), place_rad in zip(openings, places_rad.tolist(), strict=True):
        middle_m = np.array([radius_m + ring.lane_width_m / 2, 0.0])
        builder.add_node(f"ring{index}{side}", rotate(middle_m, place_rad), radius_m=2.0)
    names = [f"ring{index}{side}" for index, side in openings]
    for start, end, from_rad, to_rad in zip(
        names, names[1:] + names[:1], places_rad, np.roll(places_rad, -1), strict=True
    ):
        turn_rad = float((to_rad - from_rad) % (2 * np.pi))
        arc_m = winding_line([(turn_rad * radius_m, turn_rad)], spacing_m=1.0)
        around_m = rotate(rotate(arc_m, np.pi / 2) + np.array([radius_m, 0.0]), float(from_rad))
        builder.add_edge(road_name(start, end), around_m, start=start, end=end, profile=ring)
    for before, name, after in zip(names[-1:] + names[:-1], names, names[1:] + names[:1], strict=True):
        builder.link(road_name(before, name), road_name(name, after))
    for index, angle_rad in enumerate(arms_rad.tolist()):
        line_m = _entry_boundary(rng, reach_m=radius_m + ring.lane_width_m, opening_rad=opening_rad)
        arm, entry_node, exit_node = f"arm{index}", f"ring{index}in", f"ring{index}out"
        builder.add_node(arm, rotate(line_m[0], angle_rad), kind=NodeType.DEAD_END)
        mirrored_m = line_m[::-1] * np.array([1.0, -1.0])
        builder.add_edge(road_name(arm, entry_node), rotate(line_m, angle_rad), start=arm, end=entry_node, profile=road)
        builder.add_edge(
            road_name(exit_node, arm), rotate(mirrored_m, angle_rad), start=exit_node, end=arm, profile=road
        )
        builder.link(road_name(arm, entry_node), road_name(entry_node, f"ring{(index + 1) % num_arms}out"))
        builder.link(road_name(f"ring{(index - 1) % num_arms}in", exit_node), road_name(exit_node, arm))
    return builder


def _entry_boundary(rng: _Rng, *, reach_m: float, opening_rad: float) -> LinePoints:
    """The left boundary of an arm along the x axis, which bends at a splitter island to join the ring at an angle."""
    length_m, island_m = float(rng.uniform(90, 140)), float(rng.uniform(18, 24))
    begin_m, touch_m = np.array([reach_m + island_m, 0.0]), rotate(np.array([reach_m, 0.0]), opening_rad)
    heading = opening_rad + np.pi / 2 + float(rng.uniform(0.8, 1.0))  # tangent to the ring, rotated inwards
    ahead = np.array([np.cos(heading), np.sin(heading)])
    axis = np.array([1.0, 0.0])
    curve_m = bezier(begin_m, begin_m - 0.5 * island_m * axis, touch_m - 0.45 * island_m * ahead, touch_m)
    return np.concatenate([straight_line(begin_m + length_m * axis, begin_m)[:-1], curve_m])


def _arterial(rng: _Rng) -> NetworkBuilder:
    bikes_m = _bike_lane_width(rng)
    main = _street(rng, lanes=(3,), speed_mps=(12.0, 16.5), bike_lane_m=bikes_m, priority=5)
    pocket_m = float(rng.uniform(65, 85)) if rng.random() < 0.7 else 0.0
    pieces = [(float(rng.uniform(110, 150)), 0.0), (float(rng.uniform(180, 260)), float(rng.uniform(-0.3, 0.3)))]
    pieces.append((float(rng.uniform(110, 150)), 0.0))
    line_m = winding_line(pieces)
    cuts = np.round(np.cumsum([length_m for length_m, _ in pieces[:2]]) / POINT_SPACING_M).astype(int).tolist()
    lines_m = [line_m[: cuts[0] + 1], line_m[cuts[0] : cuts[1] + 1], line_m[cuts[1] :]]
    builder = NetworkBuilder()
    names = ["west", "signal0", "signal1", "east"]
    builder.add_node("west", line_m[0], kind=NodeType.DEAD_END)
    builder.add_node("east", line_m[-1], kind=NodeType.DEAD_END)
    for number, part_m in enumerate(lines_m):
        start, end = names[number], names[number + 1]
        at_start, at_end = pocket_m * start.startswith("signal"), pocket_m * end.startswith("signal")
        builder.add_road(start, end, line_m=part_m, profile=main, start_pocket_m=at_start, end_pocket_m=at_end)
    for number, cut in enumerate(cuts):
        street = _street(rng, speed_mps=(8.0, 12.0), bike_lane_m=bikes_m)
        _add_side_streets(builder, rng, f"signal{number}", line_m=line_m[cut - 1 : cut + 2], street=street)
    return builder


def _add_side_streets(
    builder: NetworkBuilder, rng: _Rng, node: str, *, line_m: LinePoints, street: RoadProfile
) -> None:
    """Adds a signalised crossing of an arterial, given by three points of its centreline, with a side street."""
    builder.add_node(node, line_m[1], kind=NodeType.SIGNALS, radius_m=float(rng.uniform(7, 12)))
    along = line_m[2] - line_m[0]
    across_rad = float(np.arctan2(along[1], along[0])) + np.pi / 2
    for name, angle in (("north", across_rad), ("south", across_rad + np.pi)):
        arm_m = _arm_line(rng, angle + float(rng.uniform(-0.2, 0.2))) + line_m[1]
        builder.add_node(f"{node}{name}", arm_m[0], kind=NodeType.DEAD_END)
        builder.add_road(f"{node}{name}", node, line_m=arm_m, profile=street)
    builder.connect(node)


def _on_ramp(rng: _Rng) -> NetworkBuilder:
    freeway = RoadProfile(
        num_lanes=int(rng.integers(2, 4)), lane_width_m=float(np.round(rng.uniform(3.4, 3.7), 2)),
        speed_mps=float(np.round(rng.uniform(22, 31), 1)), priority=10, open_to_bicycles=False,
    )  # fmt: skip
    lengths = [float(rng.uniform(180, 240)), float(rng.uniform(170, 250)), float(rng.uniform(200, 260))]
    line_m = winding_line([(length_m, float(rng.uniform(-0.12, 0.12))) for length_m in lengths])
    cuts = np.round(np.cumsum(lengths[:2]) / POINT_SPACING_M).astype(int).tolist()
    builder = NetworkBuilder()
    for name, place in (("begin", 0), ("merge", cuts[0]), ("drop", cuts[1]), ("finish", -1)):
        kind = NodeType.DEAD_END if name in ("begin", "finish") else NodeType.PRIORITY
        builder.add_node(name, line_m[place], kind=kind, radius_m=2.0)
    builder.add_edge("main", line_m[: cuts[0] + 1], start="begin", end="merge", profile=freeway)
    wider = replace(freeway, num_lanes=freeway.num_lanes + 1)
    builder.add_edge("merging", line_m[cuts[0] : cuts[1] + 1], start="merge", end="drop", profile=wider)
    builder.add_edge("onward", line_m[cuts[1] :], start="drop", end="finish", profile=freeway)
    ramp_m = _ramp_line(rng, line_m[: cuts[0] + 1], right_m=freeway.num_lanes * freeway.lane_width_m)
    builder.add_node("ramp_begin", ramp_m[0], kind=NodeType.DEAD_END)
    ramp = replace(freeway, num_lanes=1, speed_mps=float(np.round(rng.uniform(14, 19), 1)), priority=5)
    builder.add_edge("ramp", ramp_m, start="ramp_begin", end="merge", profile=ramp)
    builder.link("main", "merging", shift=1)
    builder.link("ramp", "merging")
    builder.link("merging", "onward", shift=-1)
    if rng.random() < 0.5:
        back_m = offset_line(line_m, float(rng.uniform(3, 12)))[::-1]
        builder.add_node("back_begin", back_m[0], kind=NodeType.DEAD_END)
        builder.add_node("back_finish", back_m[-1], kind=NodeType.DEAD_END)
        builder.add_edge("back", back_m, start="back_begin", end="back_finish", profile=freeway)
    return builder


def _ramp_line(rng: _Rng, main_m: LinePoints, *, right_m: float) -> LinePoints:
    """The left boundary of a ramp that joins a freeway at the end of the freeway's left boundary `main_m`."""
    beside_m = offset_line(main_m, -right_m)
    ahead = beside_m[-1] - beside_m[-2]
    heading = float(np.arctan2(ahead[1], ahead[0]))
    slant = float(rng.uniform(0.12, 0.22))
    pieces = [
        (float(rng.uniform(4, 10)), 0.0),
        (slant * float(rng.uniform(140, 260)), slant),
        (float(rng.uniform(80, 130)), 0.0),
    ]
    return (rotate(winding_line(pieces), heading + np.pi) + beside_m[-1])[::-1]


def _curved_road(rng: _Rng) -> NetworkBuilder:
    road = _street(rng, speed_mps=(11.0, 16.0), bike_lane_m=_bike_lane_width(rng))
    builder = NetworkBuilder()
    heading, side = 0.0, float(rng.choice([-1.0, 1.0]))
    pieces: list[list[tuple[float, float]]] = []
    for _ in range(int(rng.integers(3, 6))):
        radius_m, straight_m = float(rng.uniform(35, 130)), float(rng.uniform(25, 60))
        # The heading stays within 1 rad of the start, so that the road never crosses itself.
        target = side * float(rng.uniform(0.3, 1.0))
        turn, side = target - heading, -side
        pieces.append([(straight_m, 0.0), (abs(turn) * radius_m, turn)])
        heading = target
    pieces[-1].append((float(rng.uniform(40, 70)), 0.0))
    start_m, heading = np.zeros(2), 0.0
    names = [f"bend{number}" for number in range(len(pieces) + 1)]
    builder.add_node(names[0], start_m, kind=NodeType.DEAD_END)
    for number, part in enumerate(pieces):
        line_m = rotate(winding_line(part), heading) + start_m
        start_m, heading = line_m[-1], heading + sum(turn for _, turn in part)
        kind = NodeType.DEAD_END if number == len(pieces) - 1 else NodeType.PRIORITY
        builder.add_node(names[number + 1], start_m, kind=kind, radius_m=1.5)
        builder.add_road(names[number], names[number + 1], line_m=line_m, profile=road)
    for name in names[1:-1]:
        builder.connect(name)
    return builder


def _random_grid(rng: _Rng) -> NetworkBuilder:
    """Streets in two directions across the whole area; junctions are of any type and may lack an arm."""
    columns, rows = (int(count) for count in rng.integers(2, 4, 2))
    bikes_m = _bike_lane_width(rng)
    streets = [
        _street(rng, speed_mps=(8.0, 14.0), bike_lane_m=bikes_m, priority=int(rng.integers(1, 6)))
        for _ in range(columns + rows)
    ]
    xs_m = np.cumsum(rng.uniform(85, 130, columns + 2))
    ys_m = np.cumsum(rng.uniform(85, 130, rows + 2))
    builder = NetworkBuilder()
    inner = [(column, row) for column in range(1, columns + 1) for row in range(1, rows + 1)]
    position_m = {
        (column, row): np.array([xs_m[column], ys_m[row]]) - [xs_m.mean(), ys_m.mean()] + rng.uniform(-8, 8, 2)
        for column in range(columns + 2)
        for row in range(rows + 2)
    }
    names = {place: f"node{place[0]}{place[1]}" for place in position_m}
    for place in inner:
        kind = (NodeType.SIGNALS, NodeType.ALL_WAY_STOP, NodeType.PRIORITY_STOP)[int(rng.integers(3))]
        builder.add_node(names[place], position_m[place], kind=kind, radius_m=float(rng.uniform(7, 10)))
    for start, end, street in _grid_roads(rng, columns, rows):
        for place in (start, end):
            if place not in inner:
                builder.add_node(names[place], position_m[place], kind=NodeType.DEAD_END)
        line_m = straight_line(position_m[start], position_m[end])
        builder.add_road(names[start], names[end], line_m=line_m, profile=streets[street])
    for place in inner:
        builder.connect(names[place])
    return builder


def _grid_roads(rng: _Rng, columns: int, rows: int) -> list[tuple[tuple[int, int], tuple[int, int], int]]:
    """(place, place, index of the street) of each road. About every third junction lacks an arm, none lacks two."""
    across = [((c, r), (c + 1, r), columns + r - 1) for c in range(columns + 1) for r in range(1, rows + 1)]
    along = [((c, r), (c, r + 1), c - 1) for c in range(1, columns + 1) for r in range(rows + 1)]
    roads = across + along
    lacking: set[tuple[int, int]] = set()
    kept = []
    for index in rng.permutation(len(roads)).tolist():
        start, end, _ = roads[index]
        if rng.random() < 0.15 and start not in lacking and end not in lacking:
            lacking |= {start, end}
        else:
            kept.append(index)
    return [roads[index] for index in sorted(kept)]


_BUILDERS: Mapping[Family, Callable[[_Rng], NetworkBuilder]] = {
    Family.ALL_WAY_STOP: _all_way_stop,
    Family.TWO_WAY_STOP: _two_way_stop,
    Family.SIGNALS: _signals,
    Family.T_JUNCTION: _t_junction,
    Family.T_JUNCTION_NO_LEFT: partial(_t_junction, left_allowed=False),
    Family.ROUNDABOUT: _roundabout,
    Family.ARTERIAL: _arterial,
    Family.ON_RAMP: _on_ramp,
    Family.CURVED_ROAD: _curved_road,
    Family.RANDOM_GRID: _random_grid,
}
