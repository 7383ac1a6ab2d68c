"""The planner for nuplan-devkit, against a stub of the devkit's interface and a junction that is known exactly."""

import pickle
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.resources import files as resource_files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import nuplan_devkit_stub as stub
import nuplan_files as files
from waycode.baselines import ConstantVelocity, IdmDriver
from waycode.driving import Driver, Observation, Trajectory
from waycode.scene import Scene, SignalState
from waycode.simulation.errors import SimulationError
from waycode.sources.nuplan import NuplanSource

NOW = 260  # a frame: the lights are green, the ego is 13 s on its way
REAR_TO_CENTRE_M = 1.461


@pytest.fixture
def devkit() -> Iterator[None]:
    with stub.devkit():
        yield


@dataclass
class Recorder:
    """A driver that goes straight on and keeps what it observed; its state is the number of plans so far."""

    seen: list[Observation] = field(default_factory=list)
    resets: list[int] = field(default_factory=list)  # number of plans before each reset
    states: list[int] = field(default_factory=list)  # the state of each plan

    def reset(self, observation: Observation) -> int:
        self.resets.append(len(self.seen))
        return 0

    def plan(self, state: int, observation: Observation) -> tuple[Trajectory, int]:
        self.seen.append(observation)
        self.states.append(state)
        return straight_on(observation), state + 1


def straight_on(observation: Observation) -> Trajectory:
    plan, _ = ConstantVelocity().plan(None, observation)
    return plan


def planner_for(inner: Driver[Any] | None, *, route: str = files.ROUTE, **settings: float) -> Any:
    planner = import_module("waycode.simulation.nuplan.planner").WaycodePlanner(planner=inner, **settings)
    planner.initialize(stub.PlannerInitialization(route.split(), stub.StateSE2(0.0, 0.0, 0.0), stub.JunctionMap()))
    return planner


def ego_state(x_m: float, y_m: float, heading: float, *, time_us: int, yaw_rate: float = 0.0) -> stub.EgoState:
    """The ego of tests/nuplan_files.py at a place of the junction."""
    return stub.EgoState.build_from_rear_axle(
        rear_axle_pose=stub.StateSE2(x_m + files.CENTRE_M[0], y_m + files.CENTRE_M[1], heading),
        rear_axle_velocity_2d=stub.StateVector2D(files.EGO_SPEED_MPS, 0.0),
        rear_axle_acceleration_2d=stub.StateVector2D(0.0, 0.0),
        tire_steering_angle=0.0,
        time_point=stub.TimePoint(time_us),
        vehicle_parameters=stub.get_pacifica_parameters(),
        angular_vel=yaw_rate,
    )


def recorded_state(frame: int) -> stub.EgoState:
    x, y, heading, yaw_rate = files.ego_pose((files.frame_time_us(frame) - files.FIRST_US) / 1e6)
    return ego_state(x, y, heading, time_us=files.frame_time_us(frame), yaw_rate=yaw_rate)


def detections(frame: int) -> stub.DetectionsTracks:
    """The boxes of a frame of the log, as the devkit gives them: static objects have no velocity."""
    kinds = {kind.fullname: kind for kind in stub.TrackedObjectType}
    found: list[stub.SceneObject] = []
    for track, (x, y, width, length, vx, vy, yaw) in files.boxes(frame):
        assert None not in (x, y, width, length, yaw)
        centre = stub.StateSE2(x + files.CENTRE_M[0], y + files.CENTRE_M[1], yaw)  # type: ignore[arg-type]
        box = stub.OrientedBox(centre, length, width, 1.6)  # type: ignore[arg-type]
        name = files.token(8, track).hex()
        metadata = stub.SceneObjectMetadata(files.frame_time_us(frame), f"{name}@{frame}", track, name)
        kind = kinds[files.TRACK_CATEGORIES[track]]
        if vx is None or vy is None:
            found.append(stub.SceneObject(kind, box, metadata))
        else:
            found.append(stub.Agent(kind, box, stub.StateVector2D(vx, vy), metadata))
    return stub.DetectionsTracks(stub.TrackedObjects(found))


def lights(frame: int) -> list[stub.TrafficLightStatusData]:
    status = stub.TrafficLightStatusType.__members__
    return [
        stub.TrafficLightStatusData(status[name.upper()], connector, files.frame_time_us(frame))
        for connector, name in files.lights(frame)
    ]


def at_frame(frame: int, *, samples: int = 21) -> stub.PlannerInput:
    """What the devkit asks a planner with at a frame of the log, every second frame being a step."""
    past = range(frame - 2 * (samples - 1), frame + 1, 2)
    return input_of([recorded_state(f) for f in past], [detections(f) for f in past], frame=frame)


def input_of(states: list[stub.EgoState], seen: list[Any], *, frame: int) -> stub.PlannerInput:
    return stub.PlannerInput(
        iteration=stub.SimulationIteration(states[-1].time_point, frame // 2),
        history=stub.SimulationHistoryBuffer(deque(states), deque(seen), 0.1),
        traffic_light_data=lights(frame),
    )


def local_m(points_m: np.ndarray, scene: Scene) -> np.ndarray:
    """From the scene frame to that of the junction."""
    return points_m.astype(np.float64) + np.array(scene.origin_m) - files.CENTRE_M


# The package


def test_without_the_devkit_one_sentence_says_what_to_install() -> None:
    with stub.devkit(installed=False):
        package = import_module("waycode.simulation.nuplan")
        with pytest.raises(SimulationError, match=r"needs nuplan-devkit.*github\.com/motional/nuplan-devkit"):
            _ = package.WaycodePlanner


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Planner'; it has WaycodePlanner"):
        _ = import_module("waycode.simulation.nuplan").Planner


def test_hydra_finds_the_planner_and_its_settings(devkit: None) -> None:
    text = (resource_files("waycode.simulation.nuplan.config") / "planner" / "waycode_planner.yaml").read_text()
    settings = yaml.safe_load(text)["waycode_planner"]
    module, name = settings.pop("_target_").rsplit(".", 1)
    assert settings.pop("_convert_") == "all"
    planner = getattr(import_module(module), name)(**settings)
    assert isinstance(planner, stub.AbstractPlanner)
    assert planner.requires_scenario is False
    assert planner.name() == "WaycodePlanner"
    assert planner.observation_type() is stub.DetectionsTracks


def test_the_settings_are_shipped() -> None:
    pyproject = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    assert '"simulation/nuplan/config/**/*.yaml"' in pyproject


def test_a_planner_can_be_sent_to_a_worker(devkit: None) -> None:
    planner = import_module("waycode.simulation.nuplan.planner").WaycodePlanner(map_radius_m=99.0)
    assert pickle.loads(pickle.dumps(planner))._map_radius_m == 99.0  # noqa: S301


@pytest.mark.parametrize(("radius_m", "renewed_m"), [(100.0, 100.0), (100.0, 0.0), (-1.0, -2.0)])
def test_a_map_that_ends_before_it_is_renewed_is_refused(devkit: None, radius_m: float, renewed_m: float) -> None:
    with pytest.raises(SimulationError, match="expected 0 < map_renewed_m < map_radius_m"):
        planner_for(Recorder(), map_radius_m=radius_m, map_renewed_m=renewed_m)


def test_planning_before_initialising_is_refused(devkit: None) -> None:
    planner = import_module("waycode.simulation.nuplan.planner").WaycodePlanner()
    with pytest.raises(SimulationError, match="call initialize before compute_planner_trajectory"):
        planner.compute_trajectory(at_frame(NOW))


# What the planner is shown


@pytest.fixture
def shown(devkit: None) -> Observation:
    recorder = Recorder()
    planner_for(recorder, map_radius_m=600.0).compute_trajectory(at_frame(NOW))
    return recorder.seen[0]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """The same moment, read from a log and a map file."""
    folder = tmp_path_factory.mktemp("nuplan")
    files.write_map(folder / "maps")
    files.write_log(folder / "log.db")
    source = NuplanSource(folder / "log.db", folder / "maps", future_s=0.1, every_s=0.1, map_radius_m=600.0)
    reference = next(ref for ref in source.references() if ref.token == files.token(4, NOW).hex())
    return source.read(reference)


def test_the_scene_is_sound_and_ends_now(shown: Observation) -> None:
    shown.scene.validate()
    assert shown.scene.num_steps == 21
    assert shown.scene.current_step == 20


def test_tracks_are_those_of_the_log(shown: Observation, recorded: Scene) -> None:
    live, log = shown.scene.tracks, recorded.tracks
    assert (live.ids, live.ego_index) == (log.ids, log.ego_index)
    np.testing.assert_array_equal(live.types, log.types)
    np.testing.assert_array_equal(live.valid, log.valid[:, :21])
    np.testing.assert_allclose(live.length_m, log.length_m)
    seen = live.valid
    there, there_log = local_m(live.position_m, shown.scene), local_m(log.position_m[:, :21], recorded)
    np.testing.assert_allclose(there[seen], there_log[seen], atol=2e-3)
    np.testing.assert_allclose(live.heading_rad, log.heading_rad[:, :21], atol=2e-3)
    for name in (
        "vx_mps",
        "vy_mps",
    ):  # the last yaw rate is one-sided: a log knows the next step too
        np.testing.assert_allclose(getattr(live, name), getattr(log, name)[:, :21], atol=2e-2)


def test_lanes_are_those_of_the_map_file(shown: Observation, recorded: Scene) -> None:
    live, log = shown.scene.map.lanes, recorded.map.lanes
    assert live.ids == log.ids
    for row in range(len(live)):
        np.testing.assert_allclose(
            local_m(live.centrelines[row], shown.scene), local_m(log.centrelines[row], recorded), atol=2e-3
        )
    for name in ("speed_limit_mps", "speed_limit_known", "width_known", "in_junction", "successors"):
        np.testing.assert_array_equal(getattr(live, name), getattr(log, name))
    np.testing.assert_array_equal(live.left_neighbours, log.left_neighbours)
    np.testing.assert_allclose(live.width_m, log.width_m, atol=2e-3)


def test_lines_crossings_and_signs_are_those_of_the_map_file(shown: Observation, recorded: Scene) -> None:
    live, log = shown.scene.map, recorded.map
    assert sorted(live.road_line_types.tolist()) == sorted(log.road_line_types.tolist())
    assert len(live.crosswalks) == len(log.crosswalks) == 1
    np.testing.assert_array_equal(live.stop_signs.controls, log.stop_signs.controls)
    assert len(live.drivable_areas) > 0


def test_route_and_lights_are_those_of_the_log(shown: Observation, recorded: Scene) -> None:
    live, log = shown.scene, recorded
    assert live.route is not None
    assert log.route is not None
    np.testing.assert_array_equal(live.route.lanes, log.route.lanes)
    np.testing.assert_array_equal(live.route.sections, log.route.sections)
    np.testing.assert_array_equal(live.signals.lanes, log.signals.lanes)
    np.testing.assert_array_equal(live.signals.states[:, 20], log.signals.states[:, 20])
    # The devkit tells of no lights but the present ones.
    assert not live.signals.valid[:, :20].any()
    assert live.signals.valid[:, 20].all()


def test_the_ego_is_its_rear_axle(shown: Observation) -> None:
    x, y, heading, yaw_rate = files.ego_pose((files.frame_time_us(NOW) - files.FIRST_US) / 1e6)
    np.testing.assert_allclose(local_m(shown.ego.rear_axle_m, shown.scene)[0], [x, y], atol=1e-6)
    assert shown.ego.heading_rad[0] == pytest.approx(heading)
    assert shown.ego.yaw_rate_radps[0] == pytest.approx(yaw_rate)
    assert shown.ego.speed_mps[0] == files.EGO_SPEED_MPS
    assert shown.vehicle.rear_axle_to_centre_m == pytest.approx(REAR_TO_CENTRE_M)
    assert (shown.vehicle.length_m, shown.vehicle.wheelbase_m) == pytest.approx((5.176, 3.089))


def test_lights_of_earlier_steps_are_remembered(devkit: None) -> None:
    recorder = Recorder()
    planner = planner_for(recorder)
    for frame in (196, 198, 200):  # connector 57 turns green at frame 200
        planner.compute_trajectory(at_frame(frame))
    scene = recorder.seen[-1].scene
    row = scene.signals.lanes.tolist().index(scene.map.lanes.ids.index("connector_57"))
    assert scene.signals.valid[row].tolist() == [False] * 18 + [True] * 3
    assert scene.signals.states[row, -3:].tolist() == [SignalState.STOP, SignalState.STOP, SignalState.GO]


def test_a_short_history_is_masked(devkit: None) -> None:
    recorder = Recorder()
    planner_for(recorder).compute_trajectory(at_frame(NOW, samples=4))
    tracks = recorder.seen[0].scene.tracks
    assert tracks.valid[tracks.ego_index].tolist() == [False] * 17 + [True] * 4


def test_a_history_of_20_hz_is_thinned_out(devkit: None) -> None:
    recorder = Recorder()
    past = range(NOW - 20, NOW + 1)
    planner = planner_for(recorder)
    planner.compute_trajectory(input_of([recorded_state(f) for f in past], [detections(f) for f in past], frame=NOW))
    tracks = recorder.seen[0].scene.tracks
    assert tracks.valid[tracks.ego_index].tolist() == [False] * 10 + [True] * 11


def test_memory_lasts_as_long_as_the_map(devkit: None) -> None:
    recorder = Recorder()
    planner = planner_for(recorder, map_radius_m=100.0, map_renewed_m=20.0)
    for frame in (100, 102, 160, 162):  # 8 m/s: 24 m between the second and the third
        planner.compute_trajectory(at_frame(frame))
    assert recorder.states == [0, 1, 0, 1]
    assert recorder.resets == [0, 2]
    assert recorder.seen[1].scene.map is recorder.seen[0].scene.map
    assert recorder.seen[2].scene.origin_m != recorder.seen[1].scene.origin_m


@dataclass
class Stateless:
    """A driver whose state is None."""

    resets: int = 0

    def reset(self, observation: Observation) -> None:
        self.resets += 1

    def plan(self, state: None, observation: Observation) -> tuple[Trajectory, None]:
        return straight_on(observation), None


def test_a_driver_without_a_state_is_reset_once(devkit: None) -> None:
    driver = Stateless()
    planner = planner_for(driver)
    for frame in (100, 102, 104):
        planner.compute_trajectory(at_frame(frame))
    assert driver.resets == 1


def test_a_new_scenario_starts_afresh(devkit: None) -> None:
    recorder = Recorder()
    planner = planner_for(recorder)
    planner.compute_trajectory(at_frame(NOW))
    planner.initialize(stub.PlannerInitialization(["None"], stub.StateSE2(0.0, 0.0, 0.0), stub.JunctionMap()))
    planner.compute_trajectory(at_frame(NOW))
    assert recorder.resets == [0, 1]
    assert recorder.seen[1].scene.route is None


# What the planner answers


def test_the_trajectory_is_the_rear_axles(devkit: None) -> None:
    states = planner_for(ConstantVelocity()).compute_trajectory(at_frame(100)).get_sampled_trajectory()
    now = recorded_state(100)
    # The plan has 4 s; nuPlan's open-loop metrics need 8 s, so it goes straight on.
    assert [state.time_us for state in states] == [now.time_us + 100_000 * i for i in range(81)]
    along = [state.rear_axle.x - now.rear_axle.x for state in states]
    np.testing.assert_allclose(along, files.EGO_SPEED_MPS * 0.1 * np.arange(81), atol=1e-6)
    np.testing.assert_allclose([state.rear_axle.y for state in states], now.rear_axle.y, atol=1e-6)
    assert {state.dynamic_car_state.rear_axle_velocity_2d.x for state in states} == {files.EGO_SPEED_MPS}
    assert states[-1].car_footprint.vehicle_parameters.wheel_base == 3.089


@dataclass(frozen=True)
class Circle:
    """Drives to the left on a circle of 20 m around the rear axle's centre of turning, at 5 m/s."""

    radius_m: float = 20.0
    speed_mps: float = 5.0

    def reset(self, observation: Observation) -> None:
        return None

    def plan(self, state: None, observation: Observation) -> tuple[Trajectory, None]:
        ego = observation.ego
        turned = self.speed_mps / self.radius_m * 0.1 * np.arange(21)
        heading = ego.heading_rad[0] + turned
        left = np.array([-np.sin(ego.heading_rad[0]), np.cos(ego.heading_rad[0])])
        middle = ego.rear_axle_m[0] + self.radius_m * left
        axle = middle + self.radius_m * np.stack([np.sin(heading), -np.cos(heading)], axis=-1)
        ahead = np.stack([np.cos(heading), np.sin(heading)], axis=-1)
        plan = Trajectory(
            position_m=axle + observation.vehicle.rear_axle_to_centre_m * ahead,
            heading_rad=heading,
            speed_mps=np.full(21, self.speed_mps),
        )
        return plan, None


def test_turning_shows_in_yaw_rate_and_steering(devkit: None) -> None:
    states = planner_for(Circle()).compute_trajectory(at_frame(100)).get_sampled_trajectory()
    now = recorded_state(100).rear_axle
    assert (states[0].rear_axle.x, states[0].rear_axle.y) == pytest.approx((now.x, now.y), abs=1e-6)
    turning, straight = states[:20], states[22:]  # the plan has 2 s, then it goes straight on
    np.testing.assert_allclose([state.dynamic_car_state.angular_velocity for state in turning], 0.25, atol=1e-9)
    np.testing.assert_allclose([state.dynamic_car_state.angular_velocity for state in straight], 0.0, atol=1e-9)
    np.testing.assert_allclose([state.tire_steering_angle for state in turning], np.arctan(3.089 / 20), atol=1e-9)
    # A quarter of a radian per second, 2 s: sin(0.5) of the radius ahead, 1 - cos(0.5) to the left.
    end = states[20].rear_axle
    moved = (20 * np.sin(0.5), 20 * (1 - np.cos(0.5)))
    assert (end.x - now.x, end.y - now.y) == pytest.approx(moved, abs=1e-6)


@dataclass(frozen=True)
class Broken:
    def reset(self, observation: Observation) -> None:
        return None

    def plan(self, state: None, observation: Observation) -> tuple[Trajectory, None]:
        return replace(straight_on(observation), heading_rad=np.full(41, np.nan)), None


def test_a_plan_that_is_not_finite_fails_the_scenario(devkit: None) -> None:
    with pytest.raises(SimulationError, match="heading_rad has 41 values that are not finite"):
        planner_for(Broken()).compute_trajectory(at_frame(NOW))


def test_a_rule_based_planner_turns_left_with_the_route(devkit: None) -> None:
    # Perfect tracking: the car is where the plan said. It starts 28 m before the junction, and the light is green.
    planner = planner_for(IdmDriver())
    states = [ego_state(-40.0, -1.75, 0.0, time_us=files.frame_time_us(300))]
    nothing = stub.DetectionsTracks(stub.TrackedObjects([]))
    for step in range(80):
        question = input_of(states[-21:], [nothing] * len(states[-21:]), frame=300 + 2 * step)
        states.append(planner.compute_trajectory(question).get_sampled_trajectory()[1])
    path = np.array([(state.rear_axle.x, state.rear_axle.y) for state in states]) - files.CENTRE_M
    assert path[-1, 0] == pytest.approx(1.75, abs=0.1)
    assert path[-1, 1] > 20
    assert states[-1].rear_axle.heading == pytest.approx(np.pi / 2, abs=0.02)


def test_latent_token_search_drives_on_from_where_the_car_is(devkit: None) -> None:
    states = planner_for(None).compute_trajectory(at_frame(NOW)).get_sampled_trajectory()
    path = np.array([(state.rear_axle.x, state.rear_axle.y) for state in states])
    now = recorded_state(NOW).rear_axle
    assert np.isfinite(path).all()
    np.testing.assert_allclose(path[0], [now.x, now.y], atol=0.5)
    assert states[-1].time_us - states[0].time_us >= 8_000_000
    # It was driving north at 8 m/s: nothing is in its way, so it goes on.
    assert path[-1, 1] - now.y > 5
