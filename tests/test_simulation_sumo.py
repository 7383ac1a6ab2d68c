"""Traffic that lives in SUMO: it is the recorded one as long as the ego is, and reacts when it is not."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from waycode.baselines import IdmDriver
from waycode.dataset.dataset import Dataset
from waycode.driving import Vehicle, VehicleState
from waycode.scene import Scene, TrackType
from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import box_corners, boxes_overlap, forward
from waycode.simulation.errors import SimulationError
from waycode.simulation.rollout import SimulationConfig, simulate
from waycode.simulation.sumo_bodies import MAX_WALKING_MPS, WALKING_TURN_RADPS, Body, MotorLanes, Placement
from waycode.simulation.sumo_traffic import SumoTraffic
from waycode.simulation.traffic import ReplayTraffic, Snapshot, Traffic, TrafficState
from waycode.sources.base import SourceError
from waycode.sources.sumo.demand import RoadUserType
from waycode.sources.sumo.netconvert import LaneInfo
from waycode.sources.sumo.plain import VehicleClass

SAMPLES = Path(str(files("waycode"))) / "samples" / "sumo"
LEFT_M = 1.9  # from the middle of its lane, the ego stands on the line


@pytest.fixture(scope="module")
def traffic() -> Iterator[SumoTraffic]:
    traffic = SumoTraffic()
    yield traffic
    traffic.close()


@pytest.fixture(scope="module")
def signals() -> Scene:
    return sample("signals-7-00000-08")


@pytest.fixture(scope="module")
def roundabout() -> Scene:
    return sample("roundabout-7-00000-15")


def sample(name: str) -> Scene:
    return next(scene for scene in Dataset(SAMPLES) if scene.id == name)


def car_of(scene: Scene) -> Vehicle:
    tracks, ego = scene.tracks, scene.tracks.ego_index
    return Vehicle.of_size(length_m=float(tracks.length_m[ego]), width_m=float(tracks.width_m[ego]))


def recorded(scene: Scene, step: int, *, left_m: float = 0.0) -> VehicleState:
    """The ego where it was at a step, or beside that."""
    tracks, ego = scene.tracks, scene.tracks.ego_index
    heading = tracks.heading_rad[ego, step : step + 1].astype(np.float64)
    centre = tracks.position_m[ego, step : step + 1].astype(np.float64) + left_m * forward(heading + np.pi / 2)
    none = np.zeros(1)
    return VehicleState(
        rear_axle_m=centre - car_of(scene).rear_axle_to_centre_m * forward(heading),
        heading_rad=heading,
        speed_mps=tracks.speed_mps[ego, step : step + 1].astype(np.float64),
        acceleration_mps2=none,
        steering_rad=none,
        yaw_rate_radps=none,
    )


def driven(
    traffic: Traffic[TrafficState], scene: Scene, ego_at: Callable[[int], VehicleState], *, steps: int = 80
) -> list[Snapshot]:
    state, snapshots = traffic.reset(scene), []
    for step in range(scene.current_step + 1, scene.current_step + 1 + steps):
        state, snapshot = traffic.step(state, ego_at(step), vehicle=car_of(scene))
        snapshots.append(snapshot)
    return snapshots


def hit_by(snapshots: list[Snapshot], ego: VehicleState, vehicle: Vehicle) -> set[str]:
    """Who overlaps with an ego that stands there."""
    length, width = np.array([vehicle.length_m]), np.array([vehicle.width_m])
    own = box_corners(ego.centre_m(vehicle), ego.heading_rad, length_m=length, width_m=width)
    hits: set[str] = set()
    for now in snapshots:
        boxes = box_corners(
            now.position_m.astype(np.float64),
            now.heading_rad.astype(np.float64),
            length_m=now.length_m.astype(np.float64),
            width_m=now.width_m.astype(np.float64),
        )
        touching = boxes_overlap(boxes, np.repeat(own, len(boxes), axis=0)) & now.valid
        hits |= {now.ids[row] for row in np.flatnonzero(touching)}
    return hits


def test_an_ego_that_replays_its_log_sees_the_recorded_traffic_and_lights(traffic: SumoTraffic, signals: Scene) -> None:
    snapshots = driven(traffic, signals, lambda step: recorded(signals, step))
    log = driven(ReplayTraffic(), signals, lambda step: recorded(signals, step))
    assert all(now.ids == was.ids for now, was in zip(snapshots, log, strict=True))
    is_wheeled = log[0].types != TrackType.PEDESTRIAN
    for now, was in zip(snapshots, log, strict=True):
        np.testing.assert_array_equal(now.valid, was.valid)
        np.testing.assert_array_equal(now.types, was.types)
        np.testing.assert_array_equal(now.signal_states, was.signal_states)
        both = now.valid & is_wheeled
        np.testing.assert_allclose(now.position_m[now.valid], was.position_m[now.valid], atol=0.3)
        np.testing.assert_allclose(wrap_angle(now.heading_rad - was.heading_rad)[both], 0, atol=0.03)
        np.testing.assert_allclose(now.velocity_mps[both], was.velocity_mps[both], atol=0.5)
    assert len(np.unique([now.signal_states for now in snapshots], axis=0)) > 1  # the lights did change


def test_any_state_can_be_stepped_again_with_the_same_result(traffic: SumoTraffic, roundabout: Scene) -> None:
    ego, vehicle = recorded(roundabout, roundabout.current_step), car_of(roundabout)
    states, snapshots = [traffic.reset(roundabout)], []
    for _ in range(12):
        state, snapshot = traffic.step(states[-1], ego, vehicle=vehicle)
        states.append(state)
        snapshots.append(snapshot)
    branched = states[5]
    for expected in snapshots[5:]:
        branched, again = traffic.step(branched, ego, vehicle=vehicle)
        np.testing.assert_array_equal(again.position_m, expected.position_m)
        np.testing.assert_array_equal(again.heading_rad, expected.heading_rad)
        assert again.ids == expected.ids


def test_who_follows_stops_behind_an_ego_that_stands(traffic: SumoTraffic, roundabout: Scene) -> None:
    ego, vehicle = recorded(roundabout, roundabout.current_step), car_of(roundabout)
    blind = hit_by(driven(ReplayTraffic(), roundabout, lambda step: ego), ego, vehicle)
    assert blind == {"car-arm0_to_ring0in-1"}
    snapshots = driven(traffic, roundabout, lambda step: ego)
    assert hit_by(snapshots, ego, vehicle) == set()
    row = snapshots[-1].ids.index("car-arm0_to_ring0in-1")
    assert np.linalg.norm(snapshots[-1].velocity_mps[row]) < 0.5


def test_who_comes_the_other_way_stops_for_an_ego_on_the_line(traffic: SumoTraffic, signals: Scene) -> None:
    ego, vehicle = recorded(signals, signals.current_step, left_m=LEFT_M), car_of(signals)
    blind = hit_by(driven(ReplayTraffic(), signals, lambda step: ego, steps=50), ego, vehicle)
    assert blind == {"car-arm0_to_centre-4"}
    assert hit_by(driven(traffic, signals, lambda step: ego, steps=50), ego, vehicle) == set()


def test_an_ego_may_leave_the_world_and_come_back(traffic: SumoTraffic, roundabout: Scene) -> None:
    there = recorded(roundabout, roundabout.current_step)
    away = replace(there, rear_axle_m=there.rear_axle_m + 3000.0)
    snapshots = driven(traffic, roundabout, lambda step: away if step % 4 < 2 else there, steps=8)
    assert all(now.valid.any() for now in snapshots)


@pytest.mark.parametrize("source", ["womd", "sumo"])
def test_a_scene_without_its_seed_is_refused(source: str, roundabout: Scene) -> None:
    with pytest.raises(SourceError, match="only generated scenes can be rebuilt in SUMO"):
        SumoTraffic().reset(replace(roundabout, source=source, rebuild=None))


def test_a_world_that_comes_out_otherwise_is_refused(traffic: SumoTraffic, roundabout: Scene) -> None:
    shifted = replace(roundabout, tracks=replace(roundabout.tracks, x_m=roundabout.tracks.x_m + np.float32(9.0)))
    with pytest.raises(SimulationError, match=r"9\.0 m off: it was made by another version"):
        traffic.reset(shifted)
    renamed = tuple(f"{name}-b" if index else name for index, name in enumerate(roundabout.tracks.ids))
    with pytest.raises(SimulationError, match="has no 'car-arm0_to_ring0in-1-b'"):
        traffic.reset(replace(roundabout, tracks=replace(roundabout.tracks, ids=renamed)))


def test_a_worker_that_dies_is_named_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, roundabout: Scene
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # who is killed cannot tidy up
    traffic = SumoTraffic()
    state = traffic.reset(roundabout)
    assert traffic.pid is not None
    os.kill(traffic.pid, signal.SIGKILL)
    ego, vehicle = recorded(roundabout, roundabout.current_step), car_of(roundabout)
    with pytest.raises(SimulationError, match=r"the SUMO process of scene 'round.*' ended by itself \(exit code -9\)"):
        traffic.step(state, ego, vehicle=vehicle)
    assert traffic.step(state, ego, vehicle=vehicle)[1].valid.any()
    worker = traffic.pid
    assert worker is not None
    assert is_running(worker)
    del traffic, state
    assert not is_running(worker)


def test_a_worker_ends_when_its_parent_is_killed() -> None:
    program = (
        "import os, signal; from waycode.dataset.dataset import Dataset\n"
        "from waycode.simulation.sumo_traffic import SumoTraffic\n"
        "if __name__ == '__main__':\n"
        f"    traffic = SumoTraffic(); traffic.reset(Dataset({str(SAMPLES)!r})[15])\n"
        "    print(traffic.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    parent = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert parent.returncode == -signal.SIGKILL, parent.stderr
    deadline = time.monotonic() + 60
    while is_running(int(parent.stdout)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(int(parent.stdout))


def test_without_sumo_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, roundabout: Scene) -> None:
    (tmp_path / "libsumo.py").write_text("raise ImportError('not installed')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SimulationError, match=r"needs SUMO: pip install 'waycode\[sumo\]'"):
        SumoTraffic().reset(roundabout)


def test_a_planner_drives_in_it(traffic: SumoTraffic, roundabout: Scene) -> None:
    rollout = simulate(roundabout, IdmDriver(), traffic=traffic, config=SimulationConfig(horizon_s=2.0))
    assert rollout.history.failure is None
    rollout.scene.validate()


def is_running(pid: int) -> bool:
    """Whether there is such a process and it is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def lane(name: str, *points_m: tuple[float, float]) -> LaneInfo:
    return LaneInfo(
        id=name,
        edge_id=name.rsplit("_", 1)[0],
        index=int(name[-1]),
        shape_m=np.array(points_m),
        length_m=100.0,
        width_m=3.4,
        speed_mps=14.0,
        allowed=frozenset({VehicleClass.PASSENGER}),
    )


LANES = MotorLanes(
    [
        lane("there_0", (0.0, 0.0), (100.0, 0.0)),
        lane("there_1", (0.0, 3.4), (100.0, 3.4)),
        lane("back_1", (100.0, 6.8), (0.0, 6.8)),
        lane("across_0", (50.0, -50.0), (50.0, 50.0)),
        lane(":junction_0", (0.0, -3.4), (100.0, -3.4)),
    ]
)


@pytest.mark.parametrize(
    ("front_m", "expected"),
    [
        ((40.0, 0.0), None),
        ((40.0, 0.9), None),  # 0.2 m over the line: 1.7 m + 0.2 m = 0.9 m + 1.0 m
        # 0.7 m over it, and 0.4 m that SUMO rounds away: from 1.7 m to 2.8 m.
        ((40.0, 1.4), Placement(front_m=(40.0, 2.25), heading_rad=0.0, length_m=5.0, width_m=1.1)),
        # Its middle has crossed the line: now the lane that it leaves has the shadow.
        ((40.0, 2.0), Placement(front_m=(40.0, 1.15), heading_rad=0.0, length_m=5.0, width_m=1.1)),
        # Over the middle of the road by 0.5 m: its rear is the front of what comes the other way.
        ((40.0, 4.6), Placement(front_m=(35.0, 5.55), heading_rad=np.pi, length_m=5.0, width_m=0.9)),
        ((40.0, -1.4), None),  # beside it is a junction
        ((101.0, 1.4), None),  # beyond the ends of the lanes
    ],
    ids=["in its lane", "a little over", "straddles", "straddles more", "middle line", "junction", "beyond"],
)
def test_the_shadow_covers_what_the_ego_covers_of_the_other_lane(
    front_m: tuple[float, float], expected: Placement | None
) -> None:
    shadow = LANES.shadow_of(Placement(front_m=front_m, heading_rad=0.0, length_m=5.0, width_m=2.0))
    assert (shadow is None) == (expected is None)
    if shadow is not None and expected is not None:
        np.testing.assert_allclose(shadow.front_m, expected.front_m, atol=1e-9)
        assert np.cos(shadow.heading_rad - expected.heading_rad) == pytest.approx(1)
        assert (shadow.length_m, shadow.width_m) == pytest.approx((expected.length_m, expected.width_m))


CAR = RoadUserType(
    name="car0",
    mode="car",
    track_type=TrackType.VEHICLE,
    length_m=5.0,
    width_m=2.0,
    wheelbase_m=3.0,
    front_overhang_m=1.0,
    sumo_attributes=(),
)
PERSON = replace(
    CAR, mode="pedestrian", track_type=TrackType.PEDESTRIAN, length_m=0.5, wheelbase_m=0.0, front_overhang_m=0.0
)


def test_a_body_is_the_same_by_its_bumper_and_by_its_centre() -> None:
    body = Body.at_bumper(CAR, np.array([2.5, 0.0]), heading_rad=0.0, speed_mps=3.0)
    np.testing.assert_allclose(body.centre_m, [0.0, 0.0])
    np.testing.assert_allclose(body.velocity_mps, [3.0, 0.0])
    same = Body.at_centre(CAR, body.centre_m, heading_rad=0.0, velocity_mps=body.velocity_mps)
    assert same == body
    np.testing.assert_allclose(same.bumper_m, [2.5, 0.0])


def test_a_pulled_body_goes_straight_and_turns_after_its_bumper() -> None:
    body = Body.at_bumper(CAR, np.array([0.0, 0.0]), heading_rad=0.0, speed_mps=10.0)
    straight = body.moved_to(np.array([1.0, 0.0]), dt_s=0.1)
    np.testing.assert_allclose(straight.centre_m, [-1.5, 0.0])
    np.testing.assert_allclose(straight.velocity_mps, [10.0, 0.0])
    headings = [body.heading_rad]
    for step in range(1, 60):  # a bumper that goes left, at a right angle
        body = body.moved_to(np.array([0.0, 0.5 * step]), dt_s=0.1)
        headings.append(body.heading_rad)
    assert (np.diff(headings) >= 0).all()
    assert headings[3] < 1.0  # SUMO's own heading turns at once
    assert headings[-1] == pytest.approx(np.pi / 2, abs=0.01)


def test_a_person_neither_jumps_nor_spins() -> None:
    body = Body.at_bumper(PERSON, np.zeros(2), heading_rad=0.0, speed_mps=0.0)
    after = body.moved_to(np.array([-1.0, 0.0]), dt_s=0.1)
    np.testing.assert_allclose(after.velocity_mps, [-MAX_WALKING_MPS, 0.0])
    assert abs(after.heading_rad) == pytest.approx(WALKING_TURN_RADPS * 0.1)
    assert body.moved_to(np.zeros(2), dt_s=0.1) == body
