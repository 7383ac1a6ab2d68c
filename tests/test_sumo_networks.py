"""Every family of networks is built by netconvert for a few seeds and looked at as a driver would."""

import shutil
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import shapely

from waycode.scene import EdgeType, GraphOrigin, LaneType, MapFeatures, Scene, Signals, Tracks, TrackType
from waycode.sources.sumo.families import Family, NetworkPlan, plan_network
from waycode.sources.sumo.netconvert import (
    NetconvertError,
    RoadNetwork,
    build_network,
    netconvert_binary,
    read_network,
    write_plain,
)
from waycode.sources.sumo.plain import (
    MOTOR_CLASSES,
    Connection,
    NetworkBuilder,
    RoadProfile,
    SignalTiming,
    VehicleClass,
    offset_line,
)
from waycode.sources.sumo.road_map import RoadMap, build_road_map, crop_road_map

pytest.importorskip("sumo")

SEEDS = (0, 1, 2)
WHOLE_M = 5_000.0
URBAN = tuple(family for family in Family if family != Family.ON_RAMP)


@cache
def built(family: Family, seed: int) -> tuple[NetworkPlan, RoadMap]:
    plan = plan_network(family, np.random.default_rng(seed))
    with TemporaryDirectory() as folder:
        network = build_network(plan.network, Path(folder), is_freeway=plan.is_freeway)
    return plan, build_road_map(network)


def whole_map(family: Family, seed: int) -> tuple[MapFeatures, dict[str, int]]:
    return crop_road_map(built(family, seed)[1], (0.0, 0.0), centre_m=(0.0, 0.0), radius_m=WHOLE_M)


def scene_with(features: MapFeatures, signals: Signals | None = None) -> Scene:
    one_step = np.zeros((1, 1), np.float32)
    tracks = Tracks(
        ids=("car",), types=np.array([TrackType.VEHICLE], np.int8), length_m=np.full(1, 4.5, np.float32),
        width_m=np.full(1, 1.8, np.float32), x_m=one_step, y_m=one_step, heading_rad=one_step, vx_mps=one_step,
        vy_mps=one_step, valid=np.ones((1, 1), np.bool_), to_predict=np.zeros(1, np.int32), ego_index=0,
    )  # fmt: skip
    return Scene(
        id="a", source="sumo", dt_s=0.1, current_step=0, origin_m=(0.0, 0.0), tracks=tracks, map=features,
        signals=signals or Signals(),
    )  # fmt: skip


def turns_from(network: RoadNetwork, edge: str) -> set[tuple[str, str]]:
    """(SUMO's letter of the turn, edge that it leads to)."""
    return {
        (link.direction, network.lanes[link.to_lane].edge_id)
        for link in network.connections
        if network.lanes[link.from_lane].edge_id == edge
    }


every_network = pytest.mark.parametrize(
    ("family", "seed"), [(family, seed) for family in Family for seed in SEEDS], ids=lambda value: str(value)
)


@every_network
def test_map_is_valid_in_a_scene(family: Family, seed: int) -> None:
    features, lane_index = whole_map(family, seed)
    scene_with(features).validate()
    assert features.lanes.graph_origin == GraphOrigin.RECORDED
    assert lane_index == {name: index for index, name in enumerate(features.lanes.ids)}
    assert features.lanes.in_junction.any()
    assert min(len(features.road_edges), len(features.road_lines), len(features.drivable_areas)) > 0


@every_network
def test_entries_and_exits_are_those_of_the_plan(family: Family, seed: int) -> None:
    plan, roads = built(family, seed)
    network = roads.network
    allowed = {name: [network.lanes[lane].allowed for lane in edge.lanes] for name, edge in network.edges.items()}
    open_edges = [name for name, lanes in allowed.items() if any(VehicleClass.PASSENGER in lane for lane in lanes)]
    following_edges = {name: network.successors_of_edge(name, VehicleClass.PASSENGER) for name in open_edges}
    entered = {after for edges in following_edges.values() for after in edges}
    assert tuple(name for name in open_edges if name not in entered) == plan.entry_edges
    assert tuple(name for name in open_edges if not following_edges[name]) == plan.exit_edges
    sidewalks = tuple(name for name, lanes in allowed.items() if {VehicleClass.PEDESTRIAN} in lanes)
    assert sidewalks == plan.sidewalk_edges
    for entry in plan.entry_edges:
        reached, frontier = {entry}, [entry]
        while frontier:
            following = set(network.successors_of_edge(frontier.pop(), VehicleClass.PASSENGER)) - reached
            reached |= following
            frontier += sorted(following)
        assert reached & set(plan.exit_edges), f"no way out from {entry}"


@every_network
def test_successors_start_where_a_lane_ends(family: Family, seed: int) -> None:
    lanes = whole_map(family, seed)[0].lanes
    for before, after in lanes.successors.tolist():
        gap_m = np.linalg.norm(lanes.centrelines[before][-1] - lanes.centrelines[after][0])
        assert gap_m < 0.5, f"{gap_m:.2f} m from {lanes.ids[before]} to {lanes.ids[after]}"
    entered = set(lanes.successors[:, 1].tolist())
    left = set(lanes.successors[:, 0].tolist())
    assert all(lane in entered and lane in left for lane in np.flatnonzero(lanes.in_junction).tolist())


@every_network
def test_lanes_lie_within_the_drivable_area_and_no_edge_crosses_them(family: Family, seed: int) -> None:
    features, _ = whole_map(family, seed)
    area = shapely.union_all([shapely.Polygon(points) for points in features.drivable_areas.as_list()]).buffer(0.02)
    edges = shapely.union_all([shapely.LineString(points) for points in features.road_edges.as_list()])
    for name, points in zip(features.lanes.ids, features.lanes.centrelines.as_list(), strict=True):
        line = shapely.LineString(points)
        assert area.covers(line), f"{name} leaves the drivable area"
        assert not edges.intersects(line), f"a road edge crosses {name}"


@every_network
def test_pieces_of_the_drivable_area_are_simple_and_hardly_overlap(family: Family, seed: int) -> None:
    polygons = [shapely.Polygon(points) for points in whole_map(family, seed)[0].drivable_areas.as_list()]
    assert all(polygon.is_valid for polygon in polygons)
    surface = built(family, seed)[1].surface
    assert sum(polygon.area for polygon in polygons) == pytest.approx(surface.area, rel=1e-3)


@every_network
def test_polylines_are_dense_enough_and_small(family: Family, seed: int) -> None:
    features, _ = whole_map(family, seed)
    for polylines in (features.lanes.centrelines, features.road_edges, features.road_lines):
        for points in polylines.as_list():
            steps_m = np.linalg.norm(np.diff(points, axis=0), axis=1)
            assert steps_m.max() < 5.01
            assert steps_m.min() > 0
    near, _ = crop_road_map(built(family, seed)[1], (0.0, 0.0), centre_m=(0.0, 0.0), radius_m=80.0)
    parts = (near.lanes.centrelines, near.road_edges, near.road_lines, near.crosswalks, near.drivable_areas)
    assert sum(len(part.points_m) for part in parts) < 3_000


@every_network
def test_a_cut_map_has_no_loose_ends(family: Family, seed: int) -> None:
    _, roads = built(family, seed)
    centre_m, radius_m = tuple(roads.lane_lines[0].coords[0]), 45.0
    features, _ = crop_road_map(roads, centre_m, centre_m=centre_m, radius_m=radius_m)
    scene_with(features).validate()
    lanes = features.lanes
    assert 0 < len(lanes) <= len(roads.lane_ids)
    for before, after in lanes.successors.tolist():
        assert np.linalg.norm(lanes.centrelines[before][-1] - lanes.centrelines[after][0]) < 0.5
    for points in (features.road_edges.points_m, features.road_lines.points_m, features.drivable_areas.points_m):
        assert np.linalg.norm(points, axis=1).max() < radius_m + 0.01
    whole = shapely.union_all([line for line, _ in roads.road_edges]).buffer(0.03)
    for points in features.road_edges.as_list():  # the circle itself is no road edge
        assert whole.covers(shapely.LineString(points + np.array(centre_m)))


@pytest.mark.parametrize("family", list(Family))
def test_the_same_seed_gives_the_same_bytes(family: Family) -> None:
    features, _ = whole_map(family, 0)
    _, roads = built.__wrapped__(family, 0)
    again, _ = crop_road_map(roads, (0.0, 0.0), centre_m=(0.0, 0.0), radius_m=WHOLE_M)
    for name in ("road_edges", "road_lines", "crosswalks", "drivable_areas"):
        assert getattr(features, name).points_m.tobytes() == getattr(again, name).points_m.tobytes()
    assert features.lanes.ids == again.lanes.ids
    assert features.lanes.centrelines.points_m.tobytes() == again.lanes.centrelines.points_m.tobytes()
    assert features.lanes.successors.tobytes() == again.lanes.successors.tobytes()


@pytest.mark.parametrize("family", list(Family))
def test_seeds_differ(family: Family) -> None:
    first, second = (whole_map(family, seed)[0].lanes.centrelines.points_m for seed in SEEDS[:2])
    assert first.shape != second.shape or not np.allclose(first, second)


@pytest.mark.parametrize("seed", SEEDS)
def test_stop_signs_at_an_all_way_stop(seed: int) -> None:
    features, _ = whole_map(Family.ALL_WAY_STOP, seed)
    plan, _ = built(Family.ALL_WAY_STOP, seed)
    assert len(features.stop_signs) == 4
    stopping = {features.lanes.ids[lane].rsplit("_", 1)[0] for lane in features.stop_signs.controls[:, 1]}
    assert stopping == set(plan.entry_edges)


@pytest.mark.parametrize("seed", SEEDS)
def test_only_the_lesser_road_stops_at_a_two_way_stop(seed: int) -> None:
    features, _ = whole_map(Family.TWO_WAY_STOP, seed)
    stopping = {features.lanes.ids[lane].rsplit("_", 1)[0] for lane in features.stop_signs.controls[:, 1]}
    assert stopping == {"arm1_to_centre", "arm3_to_centre"}
    for sign, lane in features.stop_signs.controls.tolist():  # to the right of the lane's end
        *_, before, end = features.lanes.centrelines[lane]
        aside = features.stop_signs.position_m[sign] - end
        ahead = (end - before) / np.linalg.norm(end - before)
        assert ahead[0] * aside[1] - ahead[1] * aside[0] < -1


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("family", [Family.SIGNALS, Family.ARTERIAL])
def test_signals_are_on_lanes_within_the_junction(family: Family, seed: int) -> None:
    _, roads = built(family, seed)
    features, lane_index = whole_map(family, seed)
    links = roads.network.signal_links
    expected = {"centre"} if family == Family.SIGNALS else {"signal0", "signal1"}
    assert {link.signal_id for link in links.values()} == expected
    lanes = np.array([lane_index[lane] for lane in links], np.int32)
    assert features.lanes.in_junction[lanes].all()
    stops = np.array([roads.network.lanes[link.from_lane].shape_m[-1] for link in links.values()], np.float32)
    for lane, stop in zip(lanes.tolist(), stops, strict=True):
        assert np.linalg.norm(features.lanes.centrelines[lane][0] - stop) < 0.5
    states, valid = np.zeros((len(links), 1), np.int8), np.zeros((len(links), 1), np.bool_)
    scene_with(features, Signals(lanes=lanes, stop_point_m=stops, states=states, valid=valid)).validate()


@pytest.mark.parametrize("seed", SEEDS)
def test_left_turns_at_signals_start_from_a_pocket(seed: int) -> None:
    plan, roads = built(Family.SIGNALS, seed)
    network = roads.network
    pockets = [edge for edge in network.edges if edge.endswith("_pocket")]
    assert len(pockets) == 4
    for pocket in pockets:
        before = network.edges[pocket.removesuffix("_pocket")]
        leftmost = network.edges[pocket].lanes[-1]
        assert len(network.edges[pocket].lanes) == len(before.lanes) + 1
        assert not [link for link in network.connections if leftmost in (link.via_lane, link.to_lane)]
        assert {link.direction for link in network.connections if link.from_lane == leftmost} == {"l"}
        for lane in before.lanes:  # the other lanes run straight on
            here, there = network.lanes[lane], network.lanes[f"{pocket}_{network.lanes[lane].index}"]
            assert np.linalg.norm(here.shape_m[-1] - there.shape_m[0]) < 8
    assert plan.entry_edges == tuple(f"arm{index}_to_centre" for index in range(4))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_t_without_left_turn_has_none_from_its_stem(seed: int) -> None:
    plan, roads = built(Family.T_JUNCTION_NO_LEFT, seed)
    turns = turns_from(roads.network, "arm1_to_centre")
    assert turns
    assert all(direction in "rR" for direction, _ in turns)
    for before, after in plan.forbidden_turns:
        assert after not in roads.network.successors_of_edge(before, VehicleClass.PASSENGER)
    normal = built(Family.T_JUNCTION, seed)[1].network
    assert {direction.lower() for direction, _ in turns_from(normal, "arm1_to_centre")} == {"l", "r"}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_roundabout_leads_around_and_never_back_at_its_entries(seed: int) -> None:
    plan, roads = built(Family.ROUNDABOUT, seed)
    network = roads.network
    for entry in plan.entry_edges:
        (ring,) = network.successors_of_edge(entry, VehicleClass.PASSENGER)
        place, seen = ring, set()
        while place not in seen:
            seen.add(place)
            following = network.successors_of_edge(place, VehicleClass.PASSENGER)
            (place,) = [edge for edge in following if edge not in plan.exit_edges]
        assert place == ring
        assert all(direction != "t" for direction, _ in turns_from(network, entry))
    assert min(network.lanes[edge.lanes[0]].length_m for edge in network.edges.values()) > 1
    features, _ = whole_map(Family.ROUNDABOUT, seed)
    islands = (features.road_edge_types == EdgeType.MEDIAN).sum()
    assert islands == 1 + len(plan.entry_edges)  # the one in the middle, and the splitters of the arms


@pytest.mark.parametrize("seed", SEEDS)
def test_a_ramp_joins_a_freeway(seed: int) -> None:
    plan, roads = built(Family.ON_RAMP, seed)
    network = roads.network
    assert plan.is_freeway
    assert plan.sidewalk_edges == plan.bike_edges == ()
    assert network.successors_of_edge("ramp", VehicleClass.PASSENGER) == ("merging",)
    assert len(network.edges["merging"].lanes) == len(network.edges["onward"].lanes) + 1
    assert set(whole_map(Family.ON_RAMP, seed)[0].lanes.types.tolist()) == {LaneType.FREEWAY}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("family", URBAN)
def test_bicycles_find_a_way_through_towns(family: Family, seed: int) -> None:
    plan, roads = built(family, seed)
    network = roads.network
    assert set(plan.bike_edges) == {edge.id for edge in plan.network.edges}
    assert all(network.successors_of_edge(entry, VehicleClass.BICYCLE) for entry in plan.entry_edges)
    features, lane_index = whole_map(family, seed)
    bikes = [lane for lane, index in lane_index.items() if features.lanes.types[index] == LaneType.BIKE]
    assert all(not network.lanes[lane].allowed & MOTOR_CLASSES for lane in bikes)


@pytest.mark.parametrize("family", [Family.ALL_WAY_STOP, Family.SIGNALS, Family.ARTERIAL, Family.RANDOM_GRID])
def test_towns_have_crosswalks(family: Family) -> None:
    assert len(whole_map(family, 0)[0].crosswalks) >= 2


@pytest.mark.parametrize("family", list(Family))
def test_curves_can_be_driven_at_the_speed_limit(family: Family) -> None:
    for edge in built(family, 0)[0].network.edges:
        heading = np.unwrap(np.arctan2(*np.diff(edge.shape_m, axis=0).T[::-1]))
        length_m = np.linalg.norm(np.diff(edge.shape_m, axis=0), axis=1)
        curvature = np.abs(np.diff(heading)) / ((length_m[1:] + length_m[:-1]) / 2)
        assert edge.speed_mps**2 * curvature.max() <= 2.2 + 1e-6


def test_plain_files_are_the_same_bytes(tmp_path: Path) -> None:
    written = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        files = write_plain(plan_network(Family.RANDOM_GRID, np.random.default_rng(5)).network, folder)
        written.append([path.read_bytes() for path in files])
    assert written[0] == written[1]


def test_offset_of_a_circle_is_a_circle() -> None:
    angle = np.linspace(0, np.pi, 50)
    circle_m = 20 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    np.testing.assert_allclose(np.linalg.norm(offset_line(circle_m, 3.0), axis=1)[1:-1], 17, atol=0.02)


def test_netconvert_complaints_are_errors(tmp_path: Path) -> None:
    builder = NetworkBuilder()
    profile = RoadProfile(num_lanes=1, lane_width_m=3.2, speed_mps=10.0)
    for name, x_m in (("a", 0.0), ("b", 50.0)):
        builder.add_node(name, np.array([x_m, 0.0]))
    builder.add_edge("a_to_c", np.array([[0.0, 0.0], [50.0, 0.0]]), start="a", end="c", profile=profile)
    timing = SignalTiming(cycle_s=60, yellow_s=3, left_green_s=8)
    with pytest.raises(NetconvertError, match=r"netconvert .*complained.*'c'"):
        build_network(builder.build(rotation_rad=0.0, signal_timing=timing), tmp_path)


def test_a_missing_netconvert_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sumo", None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(NetconvertError, match=r"pip install 'waycode\[sumo\]'"):
        netconvert_binary()


def test_a_file_that_is_no_network_is_named(tmp_path: Path) -> None:
    path = tmp_path / "net.xml"
    path.write_text("not xml")
    with pytest.raises(NetconvertError, match=r"net\.xml is not a network"):
        read_network(path)


def test_connections_are_plain_values() -> None:
    network = plan_network(Family.T_JUNCTION, np.random.default_rng(0)).network
    assert len(set(network.connections)) == len(network.connections)
    assert isinstance(network.connections[0], Connection)
