"""The closed-loop metrics on a small hand-made road, by hand-computed numbers, and on the bundled scenes."""

from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scenes import bare_scene, small_scene
from waycode.dataset.dataset import Dataset
from waycode.driving import Vehicle
from waycode.scene import GraphOrigin, Lanes, LaneType, MapFeatures, Polylines, Scene, Tracks, TrackType, as_pairs
from waycode.scene.frames import rotate
from waycode.simulation.errors import SimulationError
from waycode.simulation.history import (
    EgoHistory,
    History,
    ego_from_centre,
    others_of,
    recorded_ego,
)
from waycode.simulation.metrics import METRICS, Assessment, MetricResult, closed_loop_score, score_run
from waycode.simulation.metrics.results import StatisticKind, series_statistics

Floats = np.ndarray[Any, np.dtype[np.float64]]
CAR = Vehicle(length_m=4.0, width_m=2.0, rear_axle_to_centre_m=1.2)
DT_S = 0.1


def road() -> MapFeatures:
    """Two lanes of 3.5 m to +x, at y = 0 and y = 3.5, 300 m long; then the right one goes on through a junction."""
    lines = [[(0, 0), (300, 0)], [(0, 3.5), (300, 3.5)], [(300, 0), (320, 0)], [(320, 0), (400, 0)]]
    area = [(0, -1.75), (400, -1.75), (400, 1.75), (300, 1.75), (300, 5.25), (0, 5.25)]
    return MapFeatures(
        lanes=Lanes(
            ids=("right", "left", "crossing", "after"),
            types=np.full(4, LaneType.STREET, np.int8),
            centrelines=Polylines.of([np.array(line) for line in lines]),
            speed_limit_mps=np.array([10, 10, 5, 15], np.float32),
            speed_limit_known=np.ones(4, np.bool_),
            width_m=np.full(4, 3.5, np.float32),
            width_known=np.ones(4, np.bool_),
            in_junction=np.array([False, False, True, False]),
            successors=as_pairs([(0, 2), (2, 3)]),
            left_neighbours=as_pairs([(0, 1)]),
            right_neighbours=as_pairs([(1, 0)]),
            graph_origin=GraphOrigin.RECORDED,
        ),
        drivable_areas=Polylines.of([np.array(area)]),
    )


def replay_log(scene: Scene) -> History:
    """The run in which the ego drives exactly as recorded, from the current step to the last."""
    first, last = scene.current_step, scene.num_steps - 1
    ego, tracks = recorded_ego(scene, first=first, last=last), others_of(scene.tracks, first=first, last=last)
    return History(scene_id=scene.id, ego=ego, tracks=tracks, map=scene.map, route=scene.route, expert=ego)


def moving(x_m: float, y_m: float = 0.0, *, speed_mps: float, heading_deg: float = 0.0, steps: int = 151) -> EgoHistory:
    """An ego that keeps its velocity; a negative speed is backwards."""
    heading = np.full(steps, np.radians(heading_deg))
    velocity = speed_mps * np.stack([np.cos(heading), np.sin(heading)], axis=-1)
    time_s = DT_S * np.arange(steps)
    centre = np.array([x_m, y_m]) + velocity * time_s[:, None]
    return ego_from_centre(centre, heading, velocity_mps=velocity, time_s=time_s, vehicle=CAR)


def others(
    *rows: tuple[float, float, float], steps: int = 151, heading_deg: float = 0.0, kind: TrackType = TrackType.VEHICLE
) -> Tracks:
    """Cars (x, y, speed) of 4 m x 2 m that keep their velocity."""
    x, y, speed = np.array(rows, np.float64).reshape(-1, 3).T
    heading = np.full((len(rows), steps), np.radians(heading_deg))
    vx, vy = speed[:, None] * np.cos(heading), speed[:, None] * np.sin(heading)
    time_s = DT_S * np.arange(steps)
    columns = {
        "x_m": x[:, None] + vx * time_s,
        "y_m": y[:, None] + vy * time_s,
        "heading_rad": heading,
        "vx_mps": vx,
        "vy_mps": vy,
        "length_m": np.full(len(rows), 4.0),
        "width_m": np.full(len(rows), 2.0),
    }
    return Tracks(
        ids=tuple(f"other-{row}" for row in range(len(rows))),
        types=np.full(len(rows), kind, np.int8),
        valid=np.ones((len(rows), steps), np.bool_),
        to_predict=np.zeros(0, np.int32),
        ego_index=None,
        **{name: column.astype(np.float32) for name, column in columns.items()},
    )


def run(
    ego: EgoHistory, tracks: Tracks | None = None, *, expert: EgoHistory | None = None, on: MapFeatures | None = None
) -> History:
    return History(
        scene_id="road",
        ego=ego,
        tracks=tracks if tracks is not None else others(steps=len(ego)),
        map=on if on is not None else road(),
        route=None,
        expert=expert or ego,
    )


def metric(name: str, history: History) -> MetricResult:
    return score_run(history).metrics[name]


# What a run is


def test_a_circle_has_no_sideways_velocity_at_the_rear_axle_and_pulls_inwards() -> None:
    time_s, rate, radius_m = DT_S * np.arange(100), 0.2, 20.0
    heading = rate * time_s
    axle = radius_m * np.stack([np.sin(heading), -np.cos(heading)], axis=-1)
    arm = CAR.rear_axle_to_centre_m
    along = np.stack([np.cos(heading), np.sin(heading)], axis=-1)
    left = np.stack([-np.sin(heading), np.cos(heading)], axis=-1)
    velocity = rate * radius_m * along + rate * arm * left
    ego = ego_from_centre(axle + arm * along, heading, velocity_mps=velocity, time_s=time_s, vehicle=CAR)
    np.testing.assert_allclose(ego.rear_axle_m, axle, atol=1e-12)
    np.testing.assert_allclose(ego.velocity_mps, [[4.0, 0.0]] * 100, atol=1e-9)
    np.testing.assert_allclose(ego.acceleration_mps2[1:-1], [[0.0, 0.8]] * 98, atol=1e-3)  # v^2 / r
    # A rigid body has -0.048; nuPlan adds w^2 arm instead of subtracting it.
    np.testing.assert_allclose(ego.centre_acceleration_mps2[2:-2], [[0.048, 0.8]] * 96, atol=1e-3)


def test_a_replay_is_the_log_from_the_current_step_on_and_leaves_the_ego_out_of_the_others() -> None:
    scene = small_scene(num_steps=30)
    history = replay_log(scene)
    assert (len(history.ego), history.tracks.ids) == (29, ("walker", "rider", "thing"))
    np.testing.assert_allclose(history.ego.centre_m[:, 0], scene.tracks.x_m[0, 1:], atol=1e-5)
    np.testing.assert_allclose(history.ego.velocity_mps, [[10.0, 0.0]] * 29, atol=1e-5)
    assert history.ego.time_s[0] == 0
    np.testing.assert_array_equal(others_of(scene.tracks, first=1, last=29).x_m, scene.tracks.x_m[1:, 1:])


def test_a_scene_without_an_ego_or_with_an_unseen_one_is_refused() -> None:
    with pytest.raises(SimulationError, match="scene 'bare' has no ego"):
        replay_log(bare_scene())
    scene = small_scene(num_steps=6)
    valid = scene.tracks.valid.copy()
    valid[0, 3] = False
    with pytest.raises(SimulationError, match=r"not observed at steps \[3\], expected 1 to 5"):
        recorded_ego(replace(scene, tracks=replace(scene.tracks, valid=valid)), first=1, last=5)


def test_a_run_in_which_the_others_last_longer_or_the_ego_is_among_them_is_refused() -> None:
    with pytest.raises(ValueError, match="the tracks have 5 steps, expected 4"):
        run(moving(0, speed_mps=1, steps=4), others(steps=5))
    with pytest.raises(ValueError, match="track 0 is the ego"):
        run(moving(0, speed_mps=1, steps=4), replace(others((0, 0, 0), steps=4), ego_index=0))


# Collisions. The ego is at x = 100 and drives at 5 m/s; boxes overlap if centres are less than 4 m x 2 m apart.


@pytest.mark.parametrize(
    ("ego_y_m", "ego_mps", "other", "heading_deg", "kind", "at_fault"),
    [
        pytest.param(0, 5, (103.5, 0, 3), 0, "front", True, id="into-a-slower-car"),
        pytest.param(0, 5, (103.5, 0, 0), 0, "stopped track", True, id="into-a-standing-car"),
        pytest.param(0, 0, (103.5, 0, 3), 180, "stopped ego", False, id="hit-while-standing"),
        pytest.param(0, 5, (96.5, 0, 8), 0, "rear", False, id="hit-from-behind"),
        pytest.param(0, 5, (99, 1.9, 5), 0, "lateral", False, id="hit-from-the-side-in-its-lane"),
        pytest.param(1.5, 5, (99, 3.4, 5), 0, "lateral", True, id="hit-from-the-side-between-lanes"),
    ],
)
def test_collisions_are_told_apart_as_nuplan_does(
    ego_y_m: float, ego_mps: float, other: tuple[float, float, float], heading_deg: float, kind: str, at_fault: bool
) -> None:
    ego = moving(100, ego_y_m, speed_mps=ego_mps, steps=1)
    history = run(ego, others(other, steps=1, heading_deg=heading_deg))
    (collision,) = Assessment(history).collisions
    assert (collision.type.label, collision.at_fault) == (kind, at_fault)
    result = metric("no_at_fault_collision", history)
    assert result.score == float(not at_fault)
    assert [evidence.track_id for evidence in result.evidence] == (["other-0"] if at_fault else [])


@pytest.mark.parametrize(
    ("kind", "count", "score"),
    [
        (TrackType.VEHICLE, 1, 0.0),
        (TrackType.PEDESTRIAN, 1, 0.0),
        (TrackType.CYCLIST, 1, 0.0),
        (TrackType.OTHER, 1, 0.5),
        (TrackType.OTHER, 2, 0.0),
    ],
)
def test_the_first_object_is_half_forgiven_and_nobody_else(kind: TrackType, count: int, score: float) -> None:
    standing = [(103.0, 0.1 * row, 0.0) for row in range(count)]
    history = run(moving(100, speed_mps=5, steps=1), others(*standing, steps=1, kind=kind))
    assert metric("no_at_fault_collision", history).score == score


def test_a_collision_counts_once_and_says_when_and_how_hard() -> None:
    history = run(moving(100, speed_mps=10, steps=20), others((108.5, 0, 0), steps=20))  # gap 4.5 m: hit at 0.5 s
    result = metric("no_at_fault_collision", history)
    counted = [statistic.value for statistic in result.statistics if statistic.kind == StatisticKind.COUNT]
    assert counted == [1, 0, 1, 0]
    (evidence,) = result.evidence
    assert evidence.time_s == pytest.approx(0.5)
    assert evidence.description == "stopped track collision with a vehicle, 5.0 m/s lost"


def test_road_users_that_are_not_there_are_not_hit() -> None:
    tracks = others((103, 0, 0), steps=3)
    gone = replace(tracks, valid=np.array([[False, False, False]]))
    assert Assessment(run(moving(100, speed_mps=5, steps=3), gone)).collisions == ()


# Time to collision. At 10 m/s the ego closes 1 m in each of the steps of 0.1 s that are checked.


@pytest.mark.parametrize(
    ("gap_m", "time_s", "score"),
    [
        pytest.param(8.9, 0.9, 0, id="too-close"),
        pytest.param(9.1, 1.0, 1, id="just-safe"),
        pytest.param(28.9, 2.9, 1, id="last-step-checked"),
        pytest.param(29.1, np.inf, 1, id="beyond-the-horizon"),
    ],
)
def test_time_to_a_standing_car_ahead(gap_m: float, time_s: float, score: float) -> None:
    history = run(moving(100, speed_mps=10, steps=1), others((104 + gap_m, 0, 0), steps=1))
    result = metric("time_to_collision", history)
    assert result.score == score
    assert result.statistics[0].value == pytest.approx(time_s)
    assert [evidence.track_id for evidence in result.evidence] == ([] if score else ["other-0"])


@pytest.mark.parametrize(
    ("x_m", "y_m", "watched"),
    [
        pytest.param(100, 0.0, False, id="in-its-lane-cars-beside-are-not-watched"),
        pytest.param(100, 1.0, True, id="between-lanes-they-are"),
        pytest.param(310, 0.0, True, id="in-a-junction-too"),
    ],
)
def test_who_is_watched(x_m: float, y_m: float, watched: bool) -> None:
    """A car at 45 degrees from the rear axle drives towards the ego's way at 5 m/s; they meet within a second."""
    crossing = others((x_m + 2.8, y_m - 5.0, 5), steps=1, heading_deg=90)
    result = metric("time_to_collision", run(moving(x_m, y_m, speed_mps=2, steps=1), crossing))
    assert result.score == float(not watched)


def test_a_standing_ego_and_one_that_was_hit_have_no_time_to_collision() -> None:
    assert metric("time_to_collision", run(moving(100, speed_mps=0, steps=1), others((104.5, 0, 0), steps=1))).score
    hit_from_behind = run(moving(100, speed_mps=1, steps=10), others((96.5, 0, 8), steps=10))
    assert metric("time_to_collision", hit_from_behind).score == 1


def test_at_fault_the_time_is_zero() -> None:
    result = metric("time_to_collision", run(moving(100, speed_mps=5, steps=1), others((103, 0, 0), steps=1)))
    assert (result.score, result.statistics[0].value) == (0, 0)


# The road. The ego is 2 m wide, the drivable area starts at y = -1.75.


@pytest.mark.parametrize(("outside_m", "score"), [(0.0, 1), (0.29, 1), (0.31, 0), (50.0, 0)])
def test_a_corner_may_be_less_than_30_cm_off_the_drivable_area(outside_m: float, score: float) -> None:
    result = metric("drivable_area", run(moving(50, -0.75 - outside_m, speed_mps=5, steps=20)))
    assert result.score == score
    assert result.series is not None
    np.testing.assert_allclose(result.series, outside_m, atol=1e-6)


def test_the_road_ends_where_the_map_or_a_lane_ends() -> None:
    assert metric("drivable_area", run(moving(350, 0.0, speed_mps=15, steps=30))).score == 1
    assert metric("drivable_area", run(moving(390, 0.0, speed_mps=15, steps=30))).score == 0
    assert metric("drivable_area", run(moving(290, 3.5, speed_mps=15, steps=30))).score == 0


@pytest.mark.parametrize(("outside_m", "score"), [(0.0, 1), (0.29, 1), (0.31, 0)])
def test_without_areas_a_corner_may_be_less_than_30_cm_beyond_a_road_edge(outside_m: float, score: float) -> None:
    edges = Polylines.of([np.array([(0, -1.75), (400, -1.75)])])
    kerb = replace(road(), drivable_areas=Polylines.of([]), road_edges=edges, road_edge_types=np.ones(1, np.int8))
    assert metric("drivable_area", run(moving(50, -0.75 - outside_m, speed_mps=5, steps=20), on=kerb)).score == score


@pytest.mark.parametrize(
    ("speed_mps", "score"),
    [
        pytest.param(5.0, 1, id="forwards"),
        pytest.param(-1.8, 1, id="1.98-m-back"),
        pytest.param(-1.9, 0.5, id="2.09-m-back"),
        pytest.param(-5.4, 0.5, id="5.94-m-back"),
        pytest.param(-5.5, 0, id="6.05-m-back"),
    ],
)
def test_driving_backwards(speed_mps: float, score: float) -> None:
    """nuPlan sums eleven steps of 0.1 s."""
    assert metric("driving_direction", run(moving(250, speed_mps=speed_mps, steps=40))).score == score


def test_driving_against_the_traffic_is_driving_backwards() -> None:
    result = metric("driving_direction", run(moving(250, speed_mps=8, heading_deg=180, steps=40)))
    assert result.score == 0
    assert result.evidence[0].description == "drove 8.8 m against the lane's direction within 1 s"


@pytest.mark.parametrize(
    ("x_m", "speed_mps", "score"),
    [
        pytest.param(50, 10.0, 1, id="at-the-limit"),
        pytest.param(50, 11.115, 1 - 0.5 * 11 / 10, id="half-of-the-worst"),  # eleven samples over ten steps
        pytest.param(50, 20.0, 0, id="far-over"),
        pytest.param(301, 14.0, 1, id="in-a-junction-the-higher-limit-around-it-counts"),
        pytest.param(50_000, 50.0, 1, id="off-the-lanes-there-is-none"),
    ],
)
def test_speed_limit(x_m: float, speed_mps: float, score: float) -> None:
    result = metric("speed_limit", run(moving(x_m, speed_mps=speed_mps, steps=11)))
    assert result.score == pytest.approx(score, abs=1e-6)


# Progress


@pytest.mark.parametrize(
    ("ego_mps", "expert_mps", "ratio", "made"),
    [
        pytest.param(5, 10, 0.5, 1, id="half-as-far"),
        pytest.param(12, 10, 1, 1, id="further"),
        pytest.param(0, 0, 1, 1, id="both-stand"),
        pytest.param(0, 10, 2 / 100, 0, id="stands"),
        pytest.param(1.9, 10, 0.19, 0, id="too-little"),
        pytest.param(2.1, 10, 0.21, 1, id="just-enough"),
        pytest.param(-1, 10, 0, 0, id="10-m-back"),
    ],
)
def test_progress_along_the_experts_route(ego_mps: float, expert_mps: float, ratio: float, made: float) -> None:
    """Ten seconds on the straight road."""
    expert = moving(50, speed_mps=expert_mps, steps=101)
    history = run(moving(50, speed_mps=ego_mps, steps=101), expert=expert)
    assert metric("progress", history).score == pytest.approx(ratio, abs=1e-6)
    assert metric("making_progress", history).score == made


def test_progress_goes_on_over_the_junction_and_counts_in_the_lane_beside() -> None:
    expert = moving(250, speed_mps=10, steps=101)
    found = Assessment(run(expert)).progress
    assert found is not None
    assert (found.ego_m, found.expert_m) == pytest.approx((100, 100))
    in_left_lane = run(moving(200, 3.5, speed_mps=9, steps=101), expert=moving(200, speed_mps=9, steps=101))
    assert metric("progress", in_left_lane).score == 1


def test_a_block_that_the_ego_skips_counts_with_its_length() -> None:
    expert = moving(250, speed_mps=9, steps=101)  # 250 m to 340 m: over the junction, which is 20 m long
    centre = expert.centre_m
    centre[centre[:, 0] >= 295, 0] += 25  # a jump over the junction
    jumping = ego_from_centre(
        centre,
        expert.heading_rad,
        velocity_mps=np.tile([9.0, 0.0], (101, 1)),
        time_s=expert.time_s,
        vehicle=CAR,
    )
    found = Assessment(run(jumping, expert=expert)).progress
    assert found is not None
    assert (found.ego_m, found.expert_m) == pytest.approx((115, 90))


def test_without_a_route_progress_is_full_and_says_so() -> None:
    beside = moving(50, 100.0, speed_mps=10, steps=20)  # on no lane
    result = metric("progress", run(beside))
    assert [(statistic.kind, statistic.value) for statistic in result.statistics] == [("VALUE", 0.0), ("RATIO", 1.0)]
    assert (result.score, result.applicable) == (1, False)


def test_overspeed_is_told_by_number_peaks_and_mean() -> None:
    ego = moving(50, speed_mps=9, steps=11)  # the limit is 10 m/s
    fast = np.array([0, 2, 4, 0, 0, 1, 0, 0, 0, 0, 0.0])
    ego = replace(ego, velocity_mps=np.stack([np.where(fast > 0, 10 + fast, 9.0), np.zeros(11)], axis=-1))
    found = {statistic.kind: statistic.value for statistic in metric("speed_limit", run(ego)).statistics}
    # Twice: 2 and 4 m/s for 0.2 s, then 1 m/s for 0.1 s.
    assert found == pytest.approx({"COUNT": 2, "MAX": 4, "MIN": 1, "MEAN": (3 * 0.2 + 1 * 0.1) / 0.3, "BOOLEAN": 0})


def test_the_first_two_steps_on_a_new_lane_do_not_count_for_the_driving_direction() -> None:
    back = moving(300.9, speed_mps=-10, steps=12)  # from the junction back to the lane before it, 1 m per step
    series = metric("driving_direction", run(back)).series
    assert series is not None
    np.testing.assert_allclose(np.diff(series[:6]), [0, 0, -1, -1, -1], atol=1e-6)


def test_what_is_driven_beside_the_route_does_not_count() -> None:
    ego = moving(50, speed_mps=10, heading_deg=45, steps=101)  # leaves the blocks of the route to the left
    ratio = metric("progress", run(ego, expert=moving(50, speed_mps=10, steps=101))).score
    assert 0.04 < ratio < 0.06  # 5.25 m and slack to the edge of the left lane, at 45 degrees


# Comfort and the score


def test_braking_hard_is_not_comfortable_and_says_so() -> None:
    time_s = DT_S * np.arange(40)
    speed = 25 - 5 * time_s
    centre = np.stack([50 + np.cumsum(speed) * DT_S, np.zeros(40)], axis=-1)
    velocity = np.stack([speed, np.zeros(40)], axis=-1)
    ego = ego_from_centre(centre, np.zeros(40), velocity_mps=velocity, time_s=time_s, vehicle=CAR)
    result = metric("comfort", run(ego))
    assert result.score == 0
    assert "longitudinal_acceleration_mps2 is -5.0" in result.evidence[0].description
    assert metric("comfort", run(moving(50, speed_mps=5))).score == 1


def test_a_run_shorter_than_the_jerks_window_is_not_shown_to_be_comfortable() -> None:
    result = metric("comfort", run(moving(50, speed_mps=5, steps=14)))
    assert (result.score, result.applicable) == (0, False)
    assert metric("comfort", run(moving(50, speed_mps=5, steps=15))).score == 1


def test_the_score_is_the_product_of_multipliers_times_the_weighted_mean() -> None:
    fast = run(moving(50, speed_mps=11.115, steps=101))  # the limit is 10: 1 - 0.5 * 101 / 100 of 4 in 16
    assert score_run(fast).score == pytest.approx((12 + 4 * 0.495) / 16, abs=1e-6)
    assert score_run(run(moving(50, speed_mps=8))).score == 1
    hit = run(moving(100, speed_mps=8, steps=20), others((103, 0, 0), steps=20, kind=TrackType.OTHER))
    assert score_run(hit).score == pytest.approx(0.5 * 11 / 16)  # half for the object, no time to collision


def test_a_failed_run_scores_zero_and_is_counted() -> None:
    good = run(moving(50, speed_mps=8))
    scores = [score_run(good), score_run(replace(good, failure="the planner returned NaN"))]
    total = closed_loop_score(scores)
    assert (total.cls, total.s_cr, total.s_pr, total.num_scenarios, total.num_failed) == (50, 50, 50, 2, 1)
    assert scores[1].failure == "the planner returned NaN"


def test_reasons_are_in_order_of_time() -> None:
    history = run(moving(100, -1.2, speed_mps=15, steps=30), others((130, 0, 0), steps=30))
    reasons = score_run(history).reasons()
    assert [reason.time_s for reason in reasons] == sorted(reason.time_s for reason in reasons)
    assert len(reasons) >= 3


def test_the_costliest_of_several_reasons_is_the_collision() -> None:
    hit = run(moving(100, speed_mps=15, steps=30), others((130, 0, 0), steps=30))  # speeds and gets too near before
    cause = score_run(hit).costliest()
    assert cause is not None
    assert "collision with a vehicle" in cause.description
    assert score_run(run(moving(50, speed_mps=8))).costliest() is None


def test_metrics_of_one_name_and_no_runs_are_refused() -> None:
    with pytest.raises(ValueError, match="different names"):
        score_run(run(moving(50, speed_mps=8)), metrics=[METRICS[0], METRICS[0]])
    with pytest.raises(ValueError, match="no runs to score"):
        closed_loop_score([])


def test_without_a_map_what_needs_one_is_not_judged() -> None:
    score = score_run(run(moving(50, speed_mps=8), on=MapFeatures()))
    not_judged = {name for name, result in score.metrics.items() if not result.applicable}
    assert not_judged == {"drivable_area", "driving_direction", "speed_limit", "progress", "making_progress"}
    assert score.score == 1


@pytest.mark.parametrize("turn_deg", [30, 135, -100])
def test_turning_and_moving_the_whole_world_changes_nothing(turn_deg: float) -> None:
    angle, shift = np.radians(turn_deg), np.array([40.0, -70.0])

    def turned(points: Floats) -> Floats:
        return np.asarray(rotate(np.asarray(points, np.float64), angle) + shift)

    ego, tracks, where = moving(100, 1.2, speed_mps=10.5, steps=60), others((140, 0.5, 2), (90, 3, 9), steps=60), road()
    x, y = np.moveaxis(turned(tracks.position_m), -1, 0).astype(np.float32)
    vx, vy = np.moveaxis(rotate(np.stack([tracks.vx_mps, tracks.vy_mps], -1), angle), -1, 0).astype(np.float32)
    heading = (tracks.heading_rad + angle).astype(np.float32)
    there = run(
        replace(ego, rear_axle_m=turned(ego.rear_axle_m), heading_rad=ego.heading_rad + angle),
        replace(tracks, x_m=x, y_m=y, vx_mps=vx, vy_mps=vy, heading_rad=heading),
        on=replace(
            where,
            lanes=replace(
                where.lanes, centrelines=Polylines.of([turned(line) for line in where.lanes.centrelines.as_list()])
            ),
            drivable_areas=Polylines.of([turned(ring) for ring in where.drivable_areas.as_list()]),
        ),
    )
    here = score_run(run(ego, tracks, on=where))
    assert here.score < 1
    for name, result in score_run(there).metrics.items():
        assert result.score == pytest.approx(here.metrics[name].score, abs=1e-4), name


@pytest.mark.parametrize(("count", "rank"), [(1, 0), (5, 4), (6, 4), (12, 10), (15, 12), (100, 89)])
def test_ninety_percent_is_an_observation(count: int, rank: int) -> None:
    (p90,) = series_statistics("x", np.arange(count, dtype=np.float64)[::-1], kinds=(StatisticKind.P90,))
    assert p90.value == rank


# Bundled scenes: what the ego of the log did must be good driving.


@pytest.fixture(scope="module")
def bundled() -> Dataset:
    return Dataset(Path(str(files("waycode"))) / "samples" / "sumo")


def test_replaying_the_log_of_every_bundled_scene_loses_only_by_speeding(bundled: Dataset) -> None:
    """Generated drivers have a factor of up to 1.25 on the limit; nothing else costs score."""
    scores = [score_run(replay_log(scene)) for scene in bundled]
    losing = {name for score in scores for name, result in score.metrics.items() if result.score < 1}
    assert losing == {"speed_limit"}
    total = closed_loop_score(scores)
    assert (total.s_cr, total.s_pr, total.num_failed) == (100, 100, 0)
    assert total.cls > 99
    assert all(result.applicable for score in scores for result in score.metrics.values())


def test_driving_a_bundled_scene_backwards_in_time_is_against_the_traffic(bundled: Dataset) -> None:
    wrong = 0
    for scene in bundled:
        log = replay_log(scene)
        ego = ego_from_centre(
            log.ego.centre_m[::-1],
            log.ego.heading_rad[::-1] + np.pi,
            velocity_mps=-rotate(log.ego.velocity_mps, log.ego.heading_rad)[::-1],
            time_s=log.ego.time_s,
            vehicle=log.ego.vehicle,
        )
        fast = log.ego.speed_mps.max() > 3
        wrong += int(fast and metric("driving_direction", replace(log, ego=ego)).score == 1)
    assert wrong == 0
