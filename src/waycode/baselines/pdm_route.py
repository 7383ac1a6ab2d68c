"""PDM-Closed's view of the map: centrelines end to end along the route, and lanes as polygons.

Axes: K trajectories, S samples, P points of a centreline, L lanes with a polygon, Q points.
"""

import heapq
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import shapely
from jaxtyping import Bool, Float, Int
from shapely.ops import substring

from waycode.driving import Observation, Trajectory, Vehicle, VehicleState
from waycode.driving.path import is_red
from waycode.driving.road_surface import DrivableArea, LanePolygons
from waycode.driving.route import STRAIGHT_ON_M, lanes_ahead
from waycode.scene import Lanes, Route, Scene
from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import arclengths, forward

_SECTIONS_AHEAD = 30  # the centreline ends after this many sections of the route


@dataclass(frozen=True)
class Centreline:
    """A line to drive along, with the vertices of the map: neither smoothed nor extended."""

    points_m: Float[np.ndarray, "P 2"]
    heading_rad: Float[np.ndarray, " P"]  # unwrapped; of the segment that starts at the point

    @staticmethod
    def along(lanes: Lanes, chain: list[int]) -> "Centreline":
        """The centrelines of successive lanes end to end."""
        lines = [lanes.centrelines[lane].astype(np.float64) for lane in chain]
        return Centreline(np.concatenate(lines), np.unwrap(np.concatenate([_headings(line) for line in lines])))

    def beside(self, offset_m: float) -> "Centreline":
        """A parallel line; positive offsets are to the left."""
        left = forward(self.heading_rad + np.pi / 2)
        return Centreline(self.points_m + offset_m * left, self.heading_rad)

    @cached_property
    def along_m(self) -> Float[np.ndarray, " P"]:
        """Arclength of each vertex."""
        return arclengths(self.points_m)

    @cached_property
    def line(self) -> Any:
        """The shapely line."""
        return shapely.linestrings(self.points_m)

    @property
    def length_m(self) -> float:
        return float(self.along_m[-1])

    def project(self, position_m: Float[np.ndarray, "*shape 2"]) -> Float[np.ndarray, "*shape"]:
        """Arclength of the nearest point, from 0 to the length."""
        return np.asarray(shapely.line_locate_point(self.line, shapely.points(position_m)), np.float64)

    def pose_at(
        self, along_m: Float[np.ndarray, "*shape"]
    ) -> tuple[Float[np.ndarray, "*shape 2"], Float[np.ndarray, "*shape"]]:
        """Position and heading at arclengths; those beyond the ends are at the ends."""
        x, y, heading = (np.interp(along_m, self.along_m, each) for each in (*self.points_m.T, self.heading_rad))
        return np.stack([x, y], axis=-1), heading

    def corridor(self, start_m: float, end_m: float, *, half_width_m: float) -> Any:
        """The area that a vehicle needs between two arclengths: around the vertices in between, as in the original."""
        start, end = np.clip([start_m, end_m], 0.0, self.length_m)
        between = (self.along_m >= start) & (self.along_m <= end)
        ahead = shapely.linestrings(self.points_m[between]) if between.sum() > 1 else substring(self.line, start, end)
        return shapely.buffer(ahead, half_width_m, cap_style="square")


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where K simulated trajectories are."""

    in_one_lane: Bool[np.ndarray, "K S"]  # false between lanes and off the road
    in_junction: Bool[np.ndarray, "K S"]
    off_road_m: Float[np.ndarray, "K S"]  # distance of the farthest corner from the road; infinite if not measured
    wrong_way_m: Float[np.ndarray, " K"]  # driven off the route's lanes
    progress_m: Float[np.ndarray, " K"]  # along the route


@dataclass(frozen=True, kw_only=True)
class PdmRoute:
    """The ego's route over lane polygons."""

    lanes: LanePolygons
    route: Route | None  # None without lanes
    centreline: Centreline
    edges: DrivableArea | None  # where the road ends on maps without drivable areas; lanes are the road on others

    @staticmethod
    def ahead_of(observation: Observation) -> "PdmRoute":
        """The route from the ego's lane on, without lane changes. Without lanes it is straight."""
        scene, ego, vehicle = observation.scene, observation.ego, observation.vehicle
        lanes = LanePolygons.of(scene.map.lanes)
        drivable = DrivableArea.of(scene.map, lanes)
        edges = drivable if drivable is not None and drivable.edges and not drivable.areas else None
        route = _route_on(scene, lanes, position_m=ego.centre_m(vehicle)[0], heading_rad=float(ego.heading_rad[0]))
        if route is None:
            ahead_m = ego.rear_axle_m + 2 * STRAIGHT_ON_M * forward(ego.heading_rad)
            heading = np.repeat(ego.heading_rad, 2)
            straight = Centreline(np.concatenate([ego.rear_axle_m, ahead_m]), heading)
            return PdmRoute(lanes=lanes, route=None, centreline=straight, edges=edges)
        start = _starting_row(lanes, route, ego, vehicle)
        chain = _shortest_chain(scene.map.lanes, route, lanes.lane[start])
        return PdmRoute(lanes=lanes, route=route, centreline=Centreline.along(scene.map.lanes, chain), edges=edges)

    @cached_property
    def on_route(self) -> Bool[np.ndarray, " L"]:
        """Which lanes belong to the route."""
        return np.isin(self.lanes.lane, () if self.route is None else self.route.lanes)

    @cached_property
    def _blocks(self) -> Int[np.ndarray, " L"]:
        """Number of each lane's roadblock: lanes side by side, or the ways through a junction between two of these."""
        graph, blocks = self.lanes.lanes.graph, np.full(len(self.lanes.lanes), -1)
        for lane in range(len(blocks)):
            waiting = [lane] if blocks[lane] < 0 else []
            while waiting:
                found = waiting.pop()
                blocks[found] = lane
                waiting += [other for other in graph.beside[found] if blocks[other] < 0]
        numbers, ways = blocks.copy(), dict[tuple[int, int], int]()
        for lane in np.flatnonzero(self.lanes.lanes.in_junction).tolist():
            before, after = graph.predecessors[lane], graph.successors[lane]
            ends = (int(blocks[before[0]]) if before else -1 - lane, int(blocks[after[0]]) if after else -1 - lane)
            numbers[lane] = ways.setdefault(ends, lane)
        return np.asarray(numbers[list(self.lanes.lane)])

    @cached_property
    def _prepared(self) -> Any:
        """The lanes' polygons, prepared: many points are tested at every step."""
        polygons = np.array(self.lanes.polygons, dtype=object)
        shapely.prepare(polygons)
        return polygons

    def near(self, centre_m: Float[np.ndarray, " 2"], *, reach_m: float) -> Bool[np.ndarray, " L"]:
        """Which lanes belong to a roadblock that reaches into a square of half-width `reach_m` around a point."""
        square = shapely.box(*(centre_m - reach_m), *(centre_m + reach_m))
        touched = np.asarray(shapely.intersects(self._prepared, square), np.bool_)
        return np.isin(self._blocks, self._blocks[touched])

    def limit_mps(self, ego: VehicleState, vehicle: Vehicle) -> float | None:
        """The speed limit of the route's lane that the ego is on; None if it is not known."""
        if self.route is None:
            return None
        lanes, lane = self.lanes.lanes, self.lanes.lane[_starting_row(self.lanes, self.route, ego, vehicle)]
        return float(lanes.speed_limit_mps[lane]) if lanes.speed_limit_known[lane] else None

    def red_lanes(self, scene: Scene) -> list[int]:
        """Rows of the route's lanes whose light is red now."""
        red = scene.signals.lanes[is_red(scene.signals, scene.current_step)]
        return [int(row) for row in np.flatnonzero(np.isin(self.lanes.lane, red) & self.on_route)]

    def places(self, drives: Trajectory, vehicle: Vehicle, *, reach_m: float, measures: bool) -> Places:
        """Where trajectories of the rear axle are, by the lanes around their start.

        Args:
            drives: K trajectories from now on.
            vehicle: the ego's dimensions.
            reach_m: roadblocks farther from the ego do not count as road.
            measures: measure distances from the road; otherwise they are infinite.
        """
        corners, centre_m = drives.corners_m(vehicle), drives.at_centre(vehicle).position_m
        points = np.concatenate([corners, centre_m[:, :, None]], axis=2)
        samples = drives.heading_rad.shape
        progress = self.centreline.project(centre_m[:, [0, -1]])
        in_junction = self.lanes.inside_junctions(drives.position_m.reshape(-1, 2)).reshape(samples)
        inside = np.zeros((len(self.lanes), *points.shape[:3]), np.bool_)
        for row in np.flatnonzero(self.near(centre_m[0, 0], reach_m=reach_m)):
            inside[row] = shapely.intersects_xy(self._prepared[row], points[..., 0], points[..., 1])
        held = inside[..., :4].sum(axis=-1)  # [L, K, S] corners in each lane
        on_road = inside[..., :4].any(axis=0)  # [K, S, 4]
        if self.edges is not None:
            off_road = self.edges.outside_m(corners.reshape(-1, 2)).reshape(on_road.shape)
            on_road = off_road <= 0
        else:
            off_road = np.where(on_road, 0.0, np.inf)
            if measures and not on_road.all():
                surface = DrivableArea(areas=(), edges=(), lanes=self.lanes)
                off_road[~on_road] = surface.outside_m(corners[~on_road])
        between = ((held > 0).sum(axis=0) > 1) & (held < 4).all(axis=0)
        on_route = np.ones(samples, np.bool_) if self.route is None else inside[self.on_route, :, :, 4].any(axis=0)
        return Places(
            in_one_lane=~between & on_road.all(axis=-1),
            in_junction=in_junction,
            off_road_m=off_road.max(axis=-1),
            wrong_way_m=_longest_m(centre_m, ~np.asarray(on_route)),
            progress_m=progress[:, 1] - progress[:, 0],
        )


def _longest_m(centre_m: Float[np.ndarray, "K S 2"], off_route: Bool[np.ndarray, "K S"]) -> Float[np.ndarray, " K"]:
    """Length of the longest stretch off the route."""
    moved = np.linalg.norm(np.diff(centre_m, axis=1), axis=-1)
    stretch = longest = np.zeros(len(centre_m))
    for step in range(moved.shape[1]):
        stretch = (stretch + moved[:, step]) * off_route[:, step + 1]
        longest = np.maximum(longest, stretch)
    return longest


def _headings(line_m: Float[np.ndarray, "p 2"]) -> Float[np.ndarray, " p"]:
    """Direction of the segment that starts at each point; the last point has that of the last segment."""
    step = np.diff(line_m, axis=0)
    heading = np.arctan2(step[:, 1], step[:, 0])
    return np.append(heading, heading[-1])


def _route_on(
    scene: Scene, lanes: LanePolygons, *, position_m: Float[np.ndarray, " 2"], heading_rad: float
) -> Route | None:
    """The scene's route, or the lanes ahead; None without lanes that have a polygon."""
    chain = [] if scene.route is not None else lanes_ahead(scene, position_m=position_m, heading_rad=heading_rad)
    route = scene.route if scene.route is not None else Route.of([[lane] for lane in chain])
    return route if route is not None and np.isin(lanes.lane, route.lanes).any() else None


def _starting_row(lanes: LanePolygons, route: Route, ego: VehicleState, vehicle: Vehicle) -> int:
    """Row of the route's lane that the rear axle is on, the best aligned of several; else that nearest to the ego."""
    on_route = np.isin(lanes.lane, route.lanes)
    under = np.flatnonzero(lanes.inside(ego.rear_axle_m)[:, 0] & on_route)
    if len(under):
        return int(min(under, key=lambda row: _turned_rad(lanes.centrelines[row], ego)))
    rows = np.flatnonzero(on_route)
    at_centre = rows[lanes.inside(ego.centre_m(vehicle))[rows, 0]]
    if len(at_centre):
        return int(at_centre[0])
    box = shapely.polygons(Trajectory.of_states([ego]).corners_m(vehicle)[0, 0])
    return int(rows[np.argmin(shapely.distance(np.array([lanes.polygons[row] for row in rows], dtype=object), box))])


def _turned_rad(line_m: Float[np.ndarray, "p 2"], ego: VehicleState) -> float:
    """Angle between the ego and the centreline's vertex nearest to its rear axle."""
    nearest = np.linalg.norm(line_m - ego.rear_axle_m[0], axis=1).argmin()
    return float(np.abs(wrap_angle(_headings(line_m)[nearest] - ego.heading_rad))[0])


def _shortest_chain(lanes: Lanes, route: Route, start: int) -> list[int]:
    """The shortest way over the route's lanes to its last section, without lane changes; if none leads there, that
    over the most lanes."""
    section = {int(lane): int(number) for lane, number in zip(route.lanes, route.sections, strict=True)}
    last = min(section[start] + _SECTIONS_AHEAD - 1, max(section.values()))
    queue: list[tuple[float, int, tuple[int, ...]]] = [(0.0, start, (start,))]
    reached: dict[int, tuple[float, tuple[int, ...]]] = {}
    while queue:
        length_m, lane, chain = heapq.heappop(queue)
        if lane in reached:
            continue
        if section[lane] == last:
            return list(chain)
        reached[lane] = (length_m, chain)
        for after in lanes.graph.successors[lane]:
            if after in section and after not in reached:
                heapq.heappush(queue, (length_m + float(lanes.graph.length_m[after]), after, (*chain, after)))
    return list(min(reached.values(), key=lambda found: (-len(found[1]), found[0]))[1])
