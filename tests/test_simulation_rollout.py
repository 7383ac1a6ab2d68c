"""The loop: replay is exact, planners see no future, failures are survived and named, runs repeat."""

import gc
import tracemalloc
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest

from driving_scenes import NOW, STEPS, car_tracks, road_scene, sample_scenes, straight_road
from waycode.baselines import ConstantVelocity, IdmDriver, LogReplay, PdmClosed
from waycode.driving import Driver, Observation, PerfectTracker, Trajectory, Vehicle, VehicleState
from waycode.features import FeatureConfig, extract
from waycode.scene import MapFeatures, Route, Scene
from waycode.simulation.errors import SimulationError
from waycode.simulation.rollout import Rollout, SimulationConfig, simulate
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
    """Keeps what it is shown."""

    seen: list[Observation]

    def plan(self, observation: Observation) -> Trajectory:
        self.seen.append(observation)
        return replace(ConstantVelocity().plan(observation), memory=len(self.seen))


def test_a_planner_sees_the_past_and_nothing_else() -> None:
    scene = sample_scenes(1)[0]
    watching = Watching([])
    simulate(scene, watching, traffic=ReplayTraffic(), config=SimulationConfig(horizon_s=1.0))
    assert [observation.memory for observation in watching.seen] == [None, *range(1, 10)]
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

    def plan(self, observation: Observation) -> Trajectory:
        plan = ConstantVelocity().plan(observation)
        if observation.scene.current_step < NOW + self.good_steps:
            return plan
        if self.what == "raises":
            raise RuntimeError("no idea")
        if self.what == "nan":
            return replace(plan, position_m=plan.position_m * np.nan)
        return replace(
            plan, position_m=plan.position_m[:1], heading_rad=plan.heading_rad[:1], speed_mps=plan.speed_mps[:1]
        )


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("raises", "after 0.5 s the planner raised RuntimeError: no idea"),
        ("nan", "after 0.5 s the planned position_m has 82 values that are not finite"),
        ("short", "after 0.5 s the planned trajectory has 1 samples, expected at least 2 (now and the next step)"),
    ],
)
def test_a_planner_that_fails_is_named_and_the_car_brakes_to_a_stand(what: str, reason: str) -> None:
    result = simulate(road_scene(speed_mps=8.0), Failing(what), traffic=ReplayTraffic())
    assert result.history.failure == reason
    assert len(result.planning_s) == 6
    assert len(result.history.ego) == STEPS - NOW
    speed = result.history.ego.velocity_mps[:, 0]
    np.testing.assert_allclose(speed[:5], 8.0, atol=0.01)
    assert abs(speed[-1]) < 0.1


PLANNERS: dict[str, Driver] = {"cv": ConstantVelocity(), "idm": IdmDriver(), "pdm": PdmClosed()}


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
