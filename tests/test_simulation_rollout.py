"""The loop: replay is exact, planners see no future, failures are survived and named, runs repeat."""

import gc
import tracemalloc
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from driving_scenes import NOW, STEPS, car_tracks, planned, road_scene, sample_scenes, straight_road
from waycode import Planner
from waycode.baselines import ConstantVelocity, IdmDriver, LogReplay, PdmClosed
from waycode.driving import Driver, Observation, PerfectTracker, Trajectory, Vehicle, VehicleState
from waycode.features import FeatureConfig, extract
from waycode.scene import MapFeatures, Route, Scene
from waycode.simulation.drivers import LatentDriver
from waycode.simulation.errors import SimulationError
from waycode.simulation.metrics import score_run
from waycode.simulation.rollout import Rollout, SimulationConfig, score, simulate
from waycode.simulation.traffic import ReplayState, ReplayTraffic, Snapshot, recorded_snapshot

PERFECT = SimulationConfig(tracker=PerfectTracker())


def replayed(scene: Scene) -> Rollout:
    return simulate(scene, LogReplay(scene), traffic=ReplayTraffic(), config=PERFECT)


@pytest.mark.parametrize("index", range(3))
def test_a_perfectly_tracked_replay_is_the_log(index: int) -> None:
    scene = sample_scenes(3)[index]
    result = replayed(scene)
    assert result.history.failure is None
    for name in ("x_m", "y_m", "heading_rad", "valid"):
        np.testing.assert_array_equal(getattr(result.scene.tracks, name), getattr(scene.tracks, name), err_msg=name)
    np.testing.assert_array_equal(result.scene.signals.states, scene.signals.states)
    others = np.arange(len(scene.tracks)) != scene.tracks.ego_index
    np.testing.assert_array_equal(result.scene.tracks.vx_mps[others], scene.tracks.vx_mps[others])
    expert = result.history.expert
    np.testing.assert_allclose(result.history.ego.rear_axle_m, expert.rear_axle_m, atol=1e-9)


def test_a_simulated_scene_is_valid() -> None:
    scene = sample_scenes(1)[0]
    simulate(scene, IdmDriver(), traffic=ReplayTraffic(), config=SimulationConfig(horizon_s=2.0)).scene.validate()


@dataclass(frozen=True)
class Watching:
    """Keeps what it observes; its state is the number of its steps."""

    seen: list[Observation]
    states: list[int] = field(default_factory=list)

    def reset(self, observation: Observation) -> int:
        return 0

    def plan(self, state: int, observation: Observation) -> tuple[Trajectory, int]:
        self.seen.append(observation)
        self.states.append(state)
        return planned(ConstantVelocity(), observation), state + 1


def test_a_planner_sees_the_past_and_nothing_else() -> None:
    scene = sample_scenes(1)[0]
    watching = Watching([])
    simulate(scene, watching, traffic=ReplayTraffic(), config=SimulationConfig(horizon_s=1.0))
    assert watching.states == list(range(10))
    for step, observation in enumerate(watching.seen):
        shown = observation.scene
        assert (shown.current_step, shown.num_steps) == (NOW + step, NOW + step + 1)
        ego = shown.tracks.ego_index
        assert ego == scene.tracks.ego_index
        centre = observation.ego.centre_m(observation.vehicle)[0]
        np.testing.assert_allclose(shown.tracks.position_m[ego, -1], centre, atol=1e-4)
    for one, two in pairwise(watching.seen):  # what was shown does not change afterwards
        np.testing.assert_array_equal(one.scene.tracks.x_m, two.scene.tracks.x_m[:, :-1])


def test_an_observation_can_be_fed_to_a_model() -> None:
    watching = Watching([])
    simulate(sample_scenes(1)[0], watching, traffic=ReplayTraffic(), config=SimulationConfig(horizon_s=0.5))
    scene = watching.seen[-1].scene
    assert scene.tracks.ego_index is not None
    example = extract(scene, [scene.tracks.ego_index], config=FeatureConfig())
    assert example.history[:, -1, -1].all()
    assert not example.future_valid.any()


@dataclass(frozen=True)
class Failing:
    """Drives on for a while, then does something wrong."""

    what: str
    good_steps: int = 5

    def reset(self, observation: Observation) -> None:
        if self.what == "raises at once":
            raise RuntimeError("no road")

    def plan(self, state: None, observation: Observation) -> tuple[Trajectory, None]:
        plan = planned(ConstantVelocity(), observation)
        if observation.scene.current_step < NOW + self.good_steps:
            return plan, None
        if self.what == "raises":
            raise RuntimeError("no idea")
        if self.what == "nan":
            return replace(plan, position_m=plan.position_m * np.nan), None
        return plan.samples(slice(0, 1)), None


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("raises at once", "after 0.0 s the driver raised RuntimeError: no road"),
        ("raises", "after 0.5 s the driver raised RuntimeError: no idea"),
        ("nan", "after 0.5 s the planned position_m has 82 values that are not finite"),
        ("short", "after 0.5 s the planned trajectory has 1 samples, expected at least 2 (now and the next step)"),
    ],
)
def test_a_planner_that_fails_is_named_and_the_car_brakes_to_a_stand(what: str, reason: str) -> None:
    result = simulate(road_scene(speed_mps=8.0), Failing(what), traffic=ReplayTraffic())
    good_steps = 0 if what == "raises at once" else 5
    assert result.history.failure == reason
    assert len(result.planning_s) == good_steps + 1
    assert len(result.history.ego) == STEPS - NOW
    speed = result.history.ego.velocity_mps[:, 0]
    np.testing.assert_allclose(speed[:good_steps], 8.0, atol=0.01)
    assert abs(speed[-1]) < 0.1
    if what.startswith("raises"):
        assert result.traceback is not None
        assert result.traceback.startswith("Traceback (most recent call last)")
        assert f'raise RuntimeError("{reason.rpartition(": ")[2]}")' in result.traceback  # the driver's own line
    else:
        assert result.traceback is None  # nothing was raised


@pytest.mark.parametrize(
    ("what", "error", "words"),
    [
        ("raises at once", RuntimeError, "^no road$"),
        ("raises", RuntimeError, "^no idea$"),
        ("nan", SimulationError, "^after 0.5 s the planned position_m has 82 values that are not finite$"),
        ("short", SimulationError, "^after 0.5 s the planned trajectory has 1 samples"),
    ],
    ids=["reset", "plan", "nan", "short"],
)
def test_a_strict_simulation_raises_what_the_driver_raises(what: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        simulate(road_scene(speed_mps=8.0), Failing(what), strict=True)


def test_a_strict_simulation_of_a_good_driver_is_the_same() -> None:
    config = SimulationConfig(horizon_s=0.5)
    one, two = (simulate(road_scene(), ConstantVelocity(), config=config, strict=strict) for strict in (False, True))
    np.testing.assert_array_equal(one.history.ego.rear_axle_m, two.history.ego.rear_axle_m)
    assert two.traceback is None


def test_traffic_and_configuration_have_defaults() -> None:
    scene = road_scene(others=((30.0, 3.5, 5.0),))
    short, given = (
        simulate(scene, ConstantVelocity()),
        simulate(scene, ConstantVelocity(), traffic=ReplayTraffic(), config=SimulationConfig()),
    )
    np.testing.assert_array_equal(short.scene.tracks.x_m, given.scene.tracks.x_m)
    assert len(short.history.ego) == STEPS - NOW


def test_a_planner_drives_by_latent_token_search() -> None:
    planner, config = Planner.from_pretrained("sumo-small"), SimulationConfig(horizon_s=0.4)
    scene = sample_scenes(1)[0]
    drives = [simulate(scene, driver, config=config) for driver in (planner, LatentDriver(planner=planner))]
    assert [drive.history.failure for drive in drives] == [None, None]
    np.testing.assert_array_equal(drives[0].history.ego.rear_axle_m, drives[1].history.ego.rear_axle_m)


def test_a_drive_is_scored_as_its_history() -> None:
    rollout = simulate(sample_scenes(1)[0], ConstantVelocity(), config=SimulationConfig(horizon_s=2.0))
    found, expected = score(rollout), score_run(rollout.history)
    assert (found.score, found.reasons()) == (expected.score, expected.reasons())
    assert {name: metric.score for name, metric in found.metrics.items()} == {
        name: metric.score for name, metric in expected.metrics.items()
    }


PLANNERS: dict[str, Driver[Any]] = {"cv": ConstantVelocity(), "idm": IdmDriver(), "pdm": PdmClosed()}


def awkward(what: str) -> Scene:
    scene = road_scene(others=((30.0, 0.0, 5.0),))
    if what == "no lanes":
        return replace(scene, map=MapFeatures(), route=None)
    if what == "no route":
        return replace(scene, route=None)
    if what == "off the map":
        return replace(scene, tracks=replace(scene.tracks, y_m=scene.tracks.y_m + np.float32(400)))
    if what == "empty route":
        return replace(scene, route=Route(lanes=np.zeros(0, np.int32), sections=np.zeros(0, np.int32)))
    if what == "alone":
        return road_scene()
    valid = scene.tracks.valid.copy()
    valid[1, NOW + 3 : NOW + 6] = False  # gone and there again
    valid[1, : NOW + 1] = False
    return replace(scene, tracks=car_tracks(scene.tracks.x_m, scene.tracks.y_m, valid=valid))


@pytest.mark.parametrize("name", list(PLANNERS))
@pytest.mark.parametrize("what", ["no lanes", "no route", "off the map", "empty route", "alone", "comes and goes"])
def test_awkward_scenes_are_survived(what: str, name: str) -> None:
    result = simulate(awkward(what), PLANNERS[name], traffic=ReplayTraffic(), config=SimulationConfig(horizon_s=0.6))
    assert result.history.failure is None
    assert np.isfinite(result.history.ego.rear_axle_m).all()


def test_a_scene_without_an_ego_cannot_be_driven() -> None:
    scene = road_scene()
    lost = replace(scene, tracks=replace(scene.tracks, ego_index=None))
    with pytest.raises(SimulationError, match="scene 'road' has no ego"):
        simulate(lost, ConstantVelocity(), traffic=ReplayTraffic())


def test_a_scene_without_a_future_cannot_be_driven() -> None:
    scene = replace(road_scene(), current_step=STEPS - 1)
    with pytest.raises(SimulationError, match="observed at 1 steps"):
        simulate(scene, ConstantVelocity(), traffic=ReplayTraffic())


def test_the_run_ends_where_the_ego_was_last_observed() -> None:
    scene = road_scene()
    valid = scene.tracks.valid.copy()
    valid[0, NOW + 21 :] = False
    result = simulate(
        replace(scene, tracks=replace(scene.tracks, valid=valid)), ConstantVelocity(), traffic=ReplayTraffic()
    )
    assert len(result.history.ego) == 21


def test_the_run_ends_where_the_recorded_ego_leaves_the_map() -> None:
    scene = replace(road_scene(speed_mps=20.0), map=straight_road(60.0))
    result = simulate(scene, ConstantVelocity(), traffic=ReplayTraffic())
    assert len(result.history.ego) == 31  # 60 m at 20 m/s take 3 s


@dataclass(frozen=True)
class Spawning:
    """Traffic in which a road user appears that the scene does not know."""

    def reset(self, scene: Scene) -> ReplayState:
        return ReplayTraffic().reset(scene)

    def step(self, state: ReplayState, ego: VehicleState, *, vehicle: Vehicle) -> tuple[ReplayState, Snapshot]:
        state, _ = ReplayTraffic().step(state, ego, vehicle=vehicle)
        known = recorded_snapshot(state.scene, state.step)
        if state.step < NOW + 4:
            return state, known
        return state, replace(
            known,
            ids=(*known.ids, "new"),
            types=np.append(known.types, np.int8(1)),
            length_m=np.append(known.length_m, np.float32(4)),
            width_m=np.append(known.width_m, np.float32(2)),
            position_m=np.concatenate([known.position_m, [[50, 0]]]).astype(np.float32),
            heading_rad=np.append(known.heading_rad, np.float32(0)),
            velocity_mps=np.concatenate([known.velocity_mps, [[0, 0]]]).astype(np.float32),
            valid=np.append(known.valid, True),
        )


def test_road_users_may_appear_that_were_never_recorded() -> None:
    result = simulate(road_scene(others=((20.0, 3.5, 4.0),)), ConstantVelocity(), traffic=Spawning())
    tracks = result.scene.tracks
    assert tracks.ids == ("car0", "car1", "new")
    assert int(tracks.valid[2].argmax()) == NOW + 4
    assert tracks.x_m[2, -1] == 50
    assert result.history.tracks.ids == ("car1", "new")


@pytest.mark.parametrize("name", list(PLANNERS))
def test_runs_repeat_exactly(name: str) -> None:
    scene = sample_scenes(2)[1]
    config = SimulationConfig(horizon_s=0.6)
    one, two = (simulate(scene, PLANNERS[name], traffic=ReplayTraffic(), config=config) for _ in range(2))
    np.testing.assert_array_equal(one.history.ego.rear_axle_m, two.history.ego.rear_axle_m)
    np.testing.assert_array_equal(one.scene.tracks.x_m, two.scene.tracks.x_m)


def test_the_clock_is_an_argument_and_plans_are_kept_on_request() -> None:
    ticks = iter(np.arange(0.0, 100.0, 0.25).tolist())
    config = SimulationConfig(horizon_s=0.5, keep_plans=True)
    result = simulate(
        road_scene(), ConstantVelocity(), traffic=ReplayTraffic(), config=config, clock=lambda: next(ticks)
    )
    assert result.planning_s.tolist() == [0.25] * 5
    assert len(result.plans) == 5


def test_memory_stays_flat_over_scenarios() -> None:
    scene, config = road_scene(others=((30.0, 0.0, 5.0),)), SimulationConfig(horizon_s=0.3)

    def drive() -> int:
        for _ in range(2):
            simulate(scene, IdmDriver(), traffic=ReplayTraffic(), config=config)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    drive()  # fills the caches
    tracemalloc.start()
    try:
        first = drive()
        assert drive() - first < 50_000
    finally:
        tracemalloc.stop()


def test_a_horizon_must_be_positive() -> None:
    with pytest.raises(ValueError, match="expected more than 0"):
        SimulationConfig(horizon_s=0.0)
