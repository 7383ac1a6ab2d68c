"""At-fault collisions and time to collision of many drives: by hand, and against a loop over all boxes; forecasts."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driving_scenes import DT_S, NOW, PLANNED_STEPS, drives_along, observation_of, road_scene
from waycode.driving import Forecast, Observation, Trajectory, Vehicle, constant_velocity_forecast
from waycode.driving.collisions import (
    STOPPED_MPS,
    TTC_LOOKS,
    CollisionType,
    Conflicts,
    SafetyMargin,
    bearing,
    box_overlaps,
    classify_collisions,
    find_conflicts,
    front_overlaps,
    is_at_fault,
    is_relevant_for_ttc,
    with_safety_margin,
)
from waycode.scene import TrackType
from waycode.scene.geometry import box_corners, boxes_overlap, forward

CAR = Vehicle.of_size(length_m=4.5, width_m=1.9)


def conflicts(observation: Observation, *speeds_mps: float, margin: SafetyMargin | None = None) -> Conflicts:
    """Of drives along the lane."""
    drives = drives_along(observation, *speeds_mps)
    others = constant_velocity_forecast(
        observation.scene, observation.agent, num_steps=PLANNED_STEPS + TTC_LOOKS[-1], near=observation.ego
    )
    none = np.zeros(drives.speed_mps.shape, np.bool_)
    return find_conflicts(
        drives,
        others,
        vehicle=observation.vehicle,
        in_one_lane=~none,
        in_junction=none,
        margin=margin or SafetyMargin(),
        dt_s=DT_S,
    )


@pytest.mark.parametrize(
    ("other", "speed_mps", "step"),
    [
        # centres 20 m apart, boxes 4.5 m long: 15.5 m are closed at 10 m/s in 1.55 s, seen at the next sample
        pytest.param((20.0, 0.0, 0.0), 10.0, 16.0, id="standing ahead"),
        pytest.param((20.0, 0.0, 5.0), 10.0, 32.0, id="slower ahead: touches after 3.1 s"),
        pytest.param((20.0, 0.0, 10.0), 10.0, np.inf, id="as fast ahead"),
        pytest.param((20.0, 3.5, 0.0), 10.0, np.inf, id="in the other lane"),
        pytest.param((-20.0, 0.0, 15.0), 2.0, np.inf, id="from behind is not our fault"),
        pytest.param((3.0, 0.0, 0.0), 10.0, np.inf, id="touched already"),
    ],
)
def test_first_collisions_by_hand(other: tuple[float, float, float], speed_mps: float, step: float) -> None:
    found = conflicts(observation_of(road_scene(others=(other,))), speed_mps)
    assert found.first_step.tolist() == [step]


def test_a_margin_makes_collisions_sooner() -> None:
    observation = observation_of(road_scene(others=((20.0, 0.0, 0.0),)))
    found = conflicts(observation, 10.0, margin=SafetyMargin(ahead_m=3.0))
    assert found.first_step.tolist() == [13.0]  # 12.5 m at 10 m/s


def test_a_road_user_within_the_margin_already_must_not_be_touched() -> None:
    observation = observation_of(road_scene(others=((5.0, 0.0, 0.0),)))  # half a metre between the boxes
    found = conflicts(observation, 2.0, 0.5, 0.0, margin=SafetyMargin(ahead_m=1.0, beside_m=0.2))
    assert found.first_step.tolist() == [3.0, 11.0, np.inf]  # 0.25 s and 1 s, seen at the next sample


@pytest.mark.parametrize(("gap_s", "keeps"), [(0.7, False), (1.3, True)])
def test_time_to_collision_is_kept_if_nobody_is_within_a_second(gap_s: float, keeps: bool) -> None:
    speed = 10.0
    found = conflicts(observation_of(road_scene(others=((4.5 + gap_s * speed + 4 * speed, 0.0, 0.0),))), speed)
    assert found.first_step.tolist() == [np.inf]  # after 4 s the gap is still there
    assert found.keeps_time_to_collision.tolist() == [keeps]


def test_without_others_there_are_no_conflicts() -> None:
    found = conflicts(observation_of(road_scene()), 5.0, 10.0, margin=SafetyMargin(ahead_m=1.0, beside_m=0.2))
    assert found.first_step.tolist() == [np.inf, np.inf]
    assert found.keeps_time_to_collision.tolist() == [True, True]


def random_drives(rng: np.random.Generator, *, count: int, samples: int) -> Trajectory:
    """Drives that all start at the same place, then speed up, brake, roll back and turn."""
    speed = 6 + np.cumsum(rng.normal(0, 0.6, (count, samples)), axis=1)
    speed[0] = 0.0  # one stands
    speed[:, 0] = 6.0
    heading = np.cumsum(np.concatenate([np.zeros((count, 1)), rng.normal(0, 0.06, (count, samples - 1))], axis=1), 1)
    moved = (DT_S * speed[..., None] * forward(heading))[:, :-1]
    position = np.concatenate([np.zeros((count, 1, 2)), np.cumsum(moved, axis=1)], axis=1)
    return Trajectory(position_m=position, heading_rad=heading, speed_mps=speed, point="rear-axle")


def random_others(rng: np.random.Generator, *, count: int, samples: int) -> Forecast[np.ndarray]:
    """Boxes of all sizes around the drives; some stand."""
    heading = rng.uniform(-np.pi, np.pi, count)
    speed = np.where(rng.random(count) < 0.4, 0.0, rng.uniform(0, 8, count))
    velocity = speed[:, None] * forward(heading)
    time_s = DT_S * np.arange(samples)
    start = rng.uniform((-8, -7), (26, 7), (count, 2))
    shape = (count, samples)
    return Forecast(
        track=np.arange(count),
        types=np.ones(count, np.int8),
        position_m=start[:, None] + time_s[:, None] * velocity[:, None],
        heading_rad=np.broadcast_to(heading[:, None], shape),
        velocity_mps=np.broadcast_to(velocity[:, None], (*shape, 2)),
        valid=np.ones(shape, np.bool_),
        length_m=rng.uniform(0.5, 6, count),
        width_m=rng.uniform(0.5, 2.5, count),
    )


def test_a_road_user_counts_for_the_time_to_collision_until_it_hits_the_ego() -> None:
    # A pedestrian walks into the side of a car that creeps through a junction: not its fault, but it could have stood.
    samples = 21
    creeping, standing = (
        Trajectory(
            position_m=np.stack([speed * DT_S * np.arange(samples), np.zeros(samples)], axis=-1)[None],
            heading_rad=np.zeros((1, samples)),
            speed_mps=np.full((1, samples), speed),
            point="rear-axle",
        )
        for speed in (0.3, 0.0)
    )
    along = np.arange(samples + TTC_LOOKS[-1])
    walking: Forecast[np.ndarray] = Forecast(
        track=np.zeros(1, np.int64),
        types=np.full(1, int(TrackType.PEDESTRIAN), np.int8),
        position_m=np.stack([np.full(len(along), 1.5), -2.5 + DT_S * along], axis=-1)[None],
        heading_rad=np.full((1, len(along)), np.pi / 2),
        velocity_mps=np.tile([0.0, 1.0], (1, len(along), 1)),
        valid=np.ones((1, len(along)), np.bool_),
        length_m=np.full(1, 0.5),
        width_m=np.full(1, 0.5),
    )
    for drive, keeps in ((creeping, False), (standing, True)):
        everywhere = np.ones((1, samples), np.bool_)
        found = find_conflicts(
            drive,
            walking,
            vehicle=CAR,
            in_one_lane=everywhere,
            in_junction=everywhere,
            margin=SafetyMargin(),
            dt_s=DT_S,
        )
        assert found.first_step.tolist() == [np.inf]
        assert found.keeps_time_to_collision.tolist() == [keeps]


def corners(centre_m: np.ndarray, heading_rad: float, length_m: float, width_m: float) -> np.ndarray:
    size = np.ones(1)
    return box_corners(centre_m[None], np.array([heading_rad]), length_m=length_m * size, width_m=width_m * size)


def naive_conflicts(
    ego: Trajectory,
    others: Forecast[np.ndarray],
    in_one_lane: np.ndarray,
    in_junction: np.ndarray,
    margin: SafetyMargin,
) -> tuple[list[float], list[bool]]:
    """The same rules, one pair of boxes after the other."""
    first_steps, kept = [], []
    for car in range(len(ego.heading_rad)):
        first_step, keeps = np.inf, True
        for other in range(len(others)):

            def own_box(sample: int, ahead: int, car: int = car) -> np.ndarray:
                shift = CAR.rear_axle_to_centre_m + ahead * DT_S * ego.speed_mps[car, sample]
                heading = ego.heading_rad[car, sample]
                centre = ego.position_m[car, sample] + shift * np.array([np.cos(heading), np.sin(heading)])
                return corners(centre, heading, CAR.length_m, CAR.width_m)

            def their_box(sample: int, larger: SafetyMargin, other: int = other) -> np.ndarray:
                length = others.length_m[other] + 2 * larger.ahead_m
                width = others.width_m[other] + 2 * larger.beside_m
                return corners(others.position_m[other, sample], others.heading_rad[other, sample], length, width)

            within_now = boxes_overlap(own_box(0, 0), their_box(0, margin))[0]
            grown = SafetyMargin() if within_now else margin
            blame: bool | None = None  # of the first contact
            close = False
            for sample in range(len(ego)):
                speed, lane = ego.speed_mps[car, sample], in_one_lane[[car], sample]
                rear_axle, heading = ego.position_m[[car], sample], ego.heading_rad[[car], sample]
                angle = bearing(rear_axle, heading, others.position_m[[other], sample])
                if blame is None and boxes_overlap(own_box(sample, 0), their_box(sample, grown))[0]:
                    kind = classify_collisions(
                        np.array([speed]),
                        np.linalg.norm(others.velocity_mps[[other], sample], axis=1),
                        bearing_rad=angle,
                        front=front_overlaps(rear_axle, heading, their_box(sample, grown), vehicle=CAR),
                    )
                    is_driving = sample > 0 and speed > STOPPED_MPS and angle[0] < np.radians(150)
                    blame = bool(is_at_fault(kind, in_one_lane=lane)[0]) and is_driving
                    if blame:
                        first_step = min(first_step, float(sample))
                    assert kind[0] in list(CollisionType)
                for ahead in TTC_LOOKS[1:]:
                    near = boxes_overlap(own_box(sample, ahead), their_box(sample + ahead, SafetyMargin()))[0]
                    relevant = is_relevant_for_ttc(angle, in_one_lane=lane, in_junction=in_junction[[car], sample])
                    counts = blame is not False  # not hit without fault yet
                    close |= bool(near and relevant[0] and speed > STOPPED_MPS and counts)
            keeps &= not close
        first_steps.append(first_step)
        kept.append(keeps)
    return first_steps, kept


@given(st.integers(0, 2**31 - 1), st.sampled_from([0.0, 1.0]))
@settings(max_examples=15, deadline=None)
def test_conflicts_are_those_of_a_loop_over_all_boxes(seed: int, ahead_m: float) -> None:
    rng = np.random.default_rng(seed)
    samples, margin = 13, SafetyMargin(ahead_m=ahead_m, beside_m=ahead_m / 5)
    drives = random_drives(rng, count=3, samples=samples)
    others = random_others(rng, count=4, samples=samples + TTC_LOOKS[-1])
    lane, junction = rng.random((2, *drives.heading_rad.shape)) < 0.5
    found = find_conflicts(
        drives,
        others,
        vehicle=CAR,
        in_one_lane=lane,
        in_junction=junction,
        margin=margin,
        dt_s=DT_S,
    )
    first_steps, kept = naive_conflicts(drives, others, lane, junction, margin)
    assert found.first_step.tolist() == first_steps
    assert found.keeps_time_to_collision.tolist() == kept


@pytest.mark.parametrize("seed", range(5))
def test_all_boxes_that_overlap_are_found(seed: int) -> None:
    """Against a comparison of every drive with every other road user at every sample and look, near or far."""
    rng = np.random.default_rng(seed)
    places = tuple((float(x), float(y), float(v)) for x, y, v in rng.uniform((-40, -25, -5), (90, 25, 15), (30, 3)))
    observation = observation_of(road_scene(others=places))
    drives, margin = drives_along(observation, 0.0, 4.0, 9.0, 20.0), SafetyMargin(ahead_m=1.0, beside_m=0.2)
    others = constant_velocity_forecast(observation.scene, 0, num_steps=PLANNED_STEPS + TTC_LOOKS[-1])
    samples, looks = np.arange(PLANNED_STEPS + 1), np.array(TTC_LOOKS)
    shape = (4, 30, len(samples), len(looks))  # drives, others, samples, looks
    car, other, place, look = (index.ravel() for index in np.indices(shape))
    step, ahead = samples[place], looks[look]
    own_m = drives.at_centre(CAR).position_m[car, step] + np.stack(
        [DT_S * ahead * drives.speed_mps[car, step], np.zeros(len(car))], axis=-1
    )
    now = drives.select(0).samples(slice(0, 1)).corners_m(CAR)
    size_m = np.stack([others.length_m, others.width_m], axis=-1)
    grown_m = size_m + 2 * np.array([margin.ahead_m, margin.beside_m])
    grown = box_corners(
        others.position_m[:, 0], others.heading_rad[:, 0], length_m=grown_m[:, 0], width_m=grown_m[:, 1]
    )
    within_now = boxes_overlap(np.broadcast_to(now, grown.shape), grown)
    theirs_m = np.where(((ahead == 0) & ~within_now[other])[:, None], grown_m[other], size_m[other])
    touch = boxes_overlap(
        box_corners(
            own_m,
            drives.heading_rad[car, step],
            length_m=np.full(len(car), CAR.length_m),
            width_m=np.full(len(car), CAR.width_m),
        ),
        box_corners(
            others.position_m[other, step + ahead],
            others.heading_rad[other, step + ahead],
            length_m=theirs_m[:, 0],
            width_m=theirs_m[:, 1],
        ),
    )
    enlarged = with_safety_margin(drives, others, margin, CAR)
    found = box_overlaps(drives, others, vehicle=CAR, looks=TTC_LOOKS, grown=enlarged, dt_s=DT_S)
    assert 0 < touch.sum() < touch.size / 4
    for one, expected in zip(found, (car, other, step, look), strict=True):
        np.testing.assert_array_equal(one, expected[touch])


def test_random_boxes_meet_all_cases() -> None:
    """The random cases above contain collisions and none, times to collision kept and not kept."""
    first, kept = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        drives, others = random_drives(rng, count=3, samples=13), random_others(rng, count=4, samples=22)
        lane = np.ones(drives.heading_rad.shape, np.bool_)
        found = find_conflicts(
            drives,
            others,
            vehicle=CAR,
            in_one_lane=lane,
            in_junction=~lane,
            margin=SafetyMargin(),
            dt_s=DT_S,
        )
        first += np.isfinite(found.first_step).tolist()
        kept += found.keeps_time_to_collision.tolist()
    assert 0.1 < np.mean(first) < 0.9
    assert 0.1 < np.mean(kept) < 0.9


def test_trajectories_of_the_centre_have_the_conflicts_of_the_rear_axle() -> None:
    observation = observation_of(road_scene(others=((20.0, 0.0, 0.0),)))
    drives, none = drives_along(observation, 10.0, 3.0), np.zeros((2, PLANNED_STEPS + 1), np.bool_)
    others = constant_velocity_forecast(observation.scene, 0, num_steps=PLANNED_STEPS + 9)
    steps = [
        find_conflicts(
            one,
            others,
            vehicle=CAR,
            in_one_lane=~none,
            in_junction=none,
            margin=SafetyMargin(),
            dt_s=DT_S,
        ).first_step.tolist()
        for one in (drives, drives.at_centre(CAR))
    ]
    assert steps[0] == steps[1] == [16.0, np.inf]


def test_a_leader_that_brakes_goes_on_braking_for_a_second() -> None:
    scene = road_scene(others=((30.0, 0.0, 10.0), (60.0, 0.0, 10.0)))
    vx = scene.tracks.vx_mps.copy()
    vx[1, NOW - 5] = 12.0  # 2 m/s less in half a second
    vx[2, NOW - 5] = 8.0  # speeding up is not forecast
    observation = observation_of(replace(scene, tracks=replace(scene.tracks, vx_mps=vx)))
    steady, braking = (
        constant_velocity_forecast(observation.scene, 0, num_steps=40, near=observation.ego, braking=brakes).position_m
        for brakes in (False, True)
    )
    gone = braking[:, :, 0] - braking[:, :1, 0]
    np.testing.assert_allclose(gone[0, [5, 10, 40]], [5 - 4 / 8, 10 - 4 / 2, 8 + 3 * 6], atol=1e-4)  # for a second
    np.testing.assert_allclose(braking[1], steady[1])
