"""Features: pieces of the map computed by hand, frames of their own, and what must not change anything."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scenes import bare_scene, small_map, small_scene
from tiny_model import FEATURES, assert_same_example, assert_same_poses, crowd, moved, observed, sample_scenes
from waycode import Scene, WaycodeError
from waycode.features import Batch, FeatureConfig, FeatureError, collate, extract, segment_map
from waycode.features.extract import segments_near, split_polylines, to_own_frames
from waycode.features.types import SegmentKind
from waycode.scene import MapFeatures, Polylines, Signals, StopSigns, as_pairs
from waycode.scene.frames import rotate
from waycode.scene.geometry import arclengths, interpolate, project

SEEDS = st.integers(0, 2**32 - 1)
MIDDLE = np.zeros((1, 2), np.float32)


def polylines(*lines: list[list[float]]) -> Polylines:
    return Polylines.of([np.array(line, np.float32) for line in lines])


def with_map(scene: Scene, features: MapFeatures) -> Scene:
    return replace(scene, map=features, signals=Signals(), route=None)


@pytest.mark.parametrize(
    ("line", "pieces"),
    [
        pytest.param([[0, 0], [4, 0]], [[[0, 0], [2, 0], [4, 0]]], id="shorter than a piece"),
        pytest.param([[0, 0], [10, 0]], [[[0, 0], [5, 0], [10, 0]]], id="as long as a piece"),
        pytest.param(
            [[0, 0], [12, 0]], [[[0, 0], [3, 0], [6, 0]], [[6, 0], [9, 0], [12, 0]]], id="two pieces of equal length"
        ),
        pytest.param([[0, 0], [3, 0], [3, 5]], [[[0, 0], [3, 1], [3, 5]]], id="round a corner"),
        pytest.param([[0, 0], [2, 0], [2, 0], [8, 0]], [[[0, 0], [4, 0], [8, 0]]], id="a repeated point"),
        pytest.param([[1, 2], [1, 2]], [[[1, 2], [1, 2], [1, 2]]], id="nothing but a repeated point"),
    ],
)
def test_cutting_one_polyline(line: list[list[float]], pieces: list[list[list[float]]]) -> None:
    points, owner = split_polylines(polylines(line), count=3, length_m=10.0)
    np.testing.assert_allclose(points, pieces, atol=1e-6)
    assert owner.tolist() == [0] * len(pieces)


def test_cutting_several_polylines_never_bridges_the_gap_between_them() -> None:
    points, owner = split_polylines(
        polylines([[0, 0], [6, 0]], [[100, 0], [100, 15]], [[100, 15], [100, 16]]), count=2, length_m=10.0
    )
    assert owner.tolist() == [0, 1, 1, 2]
    assert points.tolist() == [
        [[0, 0], [6, 0]], [[100, 0], [100, 7.5]], [[100, 7.5], [100, 15]], [[100, 15], [100, 16]],
    ]  # fmt: skip


def test_cutting_an_empty_map() -> None:
    points, owner = split_polylines(Polylines.of([]), count=4, length_m=10.0)
    assert points.shape == (0, 4, 2)
    assert owner.shape == (0,)


@given(SEEDS, st.integers(2, 8), st.floats(2, 30))
@settings(max_examples=40)
def test_pieces_cover_every_polyline_evenly(seed: int, count: int, length_m: float) -> None:
    random = np.random.default_rng(seed)
    lines = Polylines.of([random.uniform(-60, 60, (random.integers(2, 7), 2)) for _ in range(random.integers(1, 6))])
    points, owner = split_polylines(lines, count=count, length_m=length_m)
    for index, line in enumerate(lines.as_list()):
        own, length = points[owner == index], arclengths(line)[-1]
        np.testing.assert_allclose(own[1:, 0], own[:-1, -1], atol=1e-4)  # each goes on where the last one ended
        assert length / len(own) <= length_m * 1.001
        at = (np.arange(len(own))[:, None] + np.linspace(0, 1, count)) * length / len(own)
        np.testing.assert_allclose(own.reshape(-1, 2), interpolate(line, at.ravel()), atol=2e-3)
        assert np.abs(project(own.reshape(-1, 2).astype(np.float64), line.astype(np.float64))[1]).max() < 1e-3


def test_own_frames_of_a_straight_piece_and_a_ring() -> None:
    square = [[0, 0], [2, 0], [2, 2], [0, 2], [0, 0]]
    straight = [[4, 1], [4, 2], [4, 3], [4, 4], [4, 5]]
    local, pose = to_own_frames(np.array([straight, square], np.float32))
    np.testing.assert_allclose(local[0], [[-2, 0], [-1, 0], [0, 0], [1, 0], [2, 0]], atol=1e-6)
    np.testing.assert_allclose(pose, [[4, 3, np.pi / 2], [0.8, 0.8, 0]], atol=1e-6)  # a ring: its first side


@given(SEEDS)
@settings(max_examples=20)
def test_own_frames_lead_back_to_the_scene_frame(seed: int) -> None:
    points = np.random.default_rng(seed).uniform(-80, 80, (5, 4, 2)).astype(np.float32)
    local, pose = to_own_frames(points)
    np.testing.assert_allclose(rotate(local, pose[:, 2:]) + pose[:, None, :2], points, atol=1e-3)
    np.testing.assert_allclose(local.mean(axis=1), 0, atol=1e-4)
    np.testing.assert_allclose(local[:, -1, 1], local[:, 0, 1], atol=1e-4)  # the chord lies along x


def test_every_kind_of_the_map_becomes_pieces() -> None:
    scene = small_scene()
    segments = extract(scene, [0], config=replace(FEATURES, segment_length_m=100.0)).segments
    lanes = [SegmentKind.LANE + int(kind) for kind in scene.map.lanes.types]
    line, edges = SegmentKind.ROAD_LINE + 1, [SegmentKind.ROAD_EDGE + 1, SegmentKind.ROAD_EDGE + 2]
    rings = [SegmentKind.CROSSWALK, SegmentKind.SPEED_BUMP, SegmentKind.DRIVEWAY]
    assert segments.kind.tolist() == [*lanes, line, *edges, *rings, SegmentKind.STOP_SIGN]
    assert segments.signal.tolist() == [0, int(scene.signals.states[0, 1]) + 1] + [0] * 8
    assert segments.speed_limit.tolist() == [13.5, 13.5] + [0.0] * 8
    np.testing.assert_allclose(segments.pose[:3], [[10, 4, 0], [10, 0, 0], [30, 0, 0]])
    np.testing.assert_allclose(segments.points_m[1], [[x, 0] for x in (-10, -6, -2, 2, 6, 10)], atol=1e-5)
    np.testing.assert_allclose(segments.pose[-1], [20, -2, 0])  # the stop sign faces the way of its lane


def test_a_light_that_is_not_seen_now_is_no_light() -> None:
    scene = small_scene()
    dark = np.zeros_like(scene.signals.valid)
    scene = replace(scene, signals=replace(scene.signals, valid=dark, states=np.zeros_like(scene.signals.states)))
    assert not extract(scene, [0], config=FEATURES).segments.signal.any()


def test_histories_and_futures_by_hand() -> None:
    turned = moved(small_scene(), angle_rad=np.pi / 2, shift_m=(100, 50))
    example = extract(turned, [2, 0], config=replace(FEATURES, history_steps=2, future_steps=5))
    assert example.track_kind.tolist() == [1, 2, 3]  # the fourth track is gone by now
    assert example.agents.tolist() == [2, 0]
    np.testing.assert_allclose(example.size_m, [[4.5, 2.0], [0.5, 0.5], [1.8, 0.75]])
    np.testing.assert_allclose(example.history[0], [[-1, 0, 1, 0, 10, 0, 1], [0, 0, 1, 0, 10, 0, 1]], atol=1e-5)
    np.testing.assert_allclose(example.track_pose[0], [100, 51, np.pi / 2], atol=1e-5)
    np.testing.assert_allclose(example.future_m[1, :, 0], [1, 2, 3, 0, 0], atol=1e-3)  # the scene ends after three
    assert example.future_valid.tolist() == [[True] * 3 + [False] * 2] * 2


def test_a_shorter_history_is_padded_in_front() -> None:
    example = extract(small_scene(), [0], config=replace(FEATURES, history_steps=6))
    assert not example.history[:, :4].any()
    assert example.history[0, :, -1].tolist() == [0, 0, 0, 0, 1, 1]


def test_what_was_not_observed_is_zero() -> None:
    scene = crowd()
    hidden = scene.tracks.valid.copy()
    hidden[:, scene.current_step - 2] = hidden[:, scene.current_step + 3] = False
    values = {name: getattr(scene.tracks, name) * hidden for name in ("x_m", "y_m", "heading_rad", "vx_mps", "vy_mps")}
    scene = replace(scene, tracks=replace(scene.tracks, valid=hidden, **values))
    example = extract(scene, observed(scene), config=FEATURES)
    assert not example.history[:, -3].any()
    assert not example.future_m[:, 2].any()
    assert not example.future_valid[:, 2].any()


@pytest.mark.parametrize(
    ("agents", "words"),
    [
        ([3], r"tracks \[3\] of scene 'small' are not observed at the current step \(1\): available are \[0, 1, 2\]"),
        ([0, 4, -1], r"has no tracks \[4, -1\]: expected 0 to 3"),
    ],
)
def test_agents_that_cannot_be_modelled(agents: list[int], words: str) -> None:
    with pytest.raises(FeatureError, match=words) as caught:
        extract(small_scene(), agents, config=FEATURES)
    assert isinstance(caught.value, WaycodeError)
    assert isinstance(caught.value, ValueError)


def test_steps_of_another_length() -> None:
    with pytest.raises(FeatureError, match=r"steps of 0.1 s, the model expects 0.5 s"):
        extract(small_scene(), [0], config=replace(FEATURES, dt_s=0.5))


@pytest.mark.parametrize(
    "change", [{"points_per_segment": 1}, {"history_steps": 0}, {"future_steps": 0}, {"dt_s": 0.0}, {"dt_s": -0.1},
               {"segment_length_m": 0.0}, {"max_distance_m": float("nan")}], ids=str,
)  # fmt: skip
def test_settings_that_make_no_sense(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        replace(FEATURES, **change)


def test_what_is_far_from_every_agent_is_left_out() -> None:
    scene = crowd()
    agents = observed(scene, 2)
    example = extract(scene, agents, config=replace(FEATURES, max_distance_m=30.0))
    everything = extract(scene, agents, config=replace(FEATURES, max_distance_m=1e4))
    assert 0 < len(example.segments.kind) < len(everything.segments.kind)
    centres = scene.tracks.position_m[agents, scene.current_step]
    for poses in (example.segments.pose, example.track_pose):
        distance = np.linalg.norm(poses[:, None, :2] - centres, axis=-1).min(axis=1)
        assert distance.max() <= 30.0
    np.testing.assert_allclose(example.track_pose[example.agents, :2], centres)


@pytest.mark.parametrize("scene", [*sample_scenes(), crowd(), small_scene()], ids=lambda scene: scene.id)
def test_motion_of_the_whole_scene_moves_poses_and_nothing_else(scene: Scene) -> None:
    angle_rad, shift_m = 2.2, (120.0, -45.0)
    agents = observed(scene, 3)
    config = replace(FEATURES, max_distance_m=1e4)  # no piece at the very border
    before = extract(scene, agents, config=config)
    after = extract(moved(scene, angle_rad=angle_rad, shift_m=shift_m), agents, config=config)
    where = {
        pose: np.concatenate([rotate(values[:, :2], angle_rad) + shift_m, values[:, 2:] + angle_rad], axis=-1).astype(
            np.float32
        )
        for pose, values in (("segments", before.segments.pose), ("tracks", before.track_pose))
    }
    expected = replace(before, segments=replace(before.segments, pose=where["segments"]), track_pose=where["tracks"])
    assert_same_example(after, expected, tolerance_m=5e-4)


ONLY_SIGN = StopSigns(position_m=np.array([[3, 4]], np.float32))
LANES = replace(small_map().lanes, centrelines=polylines([[0, 4], [9, 9]], [[50, 0], [50, 9]], [[70, 0], [90, 5]]))


@pytest.mark.parametrize(
    ("features", "heading_rad"),
    [
        pytest.param(MapFeatures(lanes=LANES, stop_signs=ONLY_SIGN), np.arctan2(5, 9), id="the nearest lane"),
        pytest.param(
            MapFeatures(
                lanes=LANES,
                stop_signs=ONLY_SIGN,
                road_lines=polylines([[3, 4], [2, 5]]),
                road_line_types=np.zeros(1, np.int8),
            ),
            np.arctan2(5, 9),
            id="a lane, though a line is nearer",
        ),
        pytest.param(
            MapFeatures(
                stop_signs=ONLY_SIGN,
                road_edges=polylines([[30, 0], [30, 9]], [[3, 0], [2, 0]]),
                road_edge_types=np.zeros(2, np.int8),
            ),
            np.pi,
            id="no lane: the nearest piece",
        ),
        pytest.param(MapFeatures(stop_signs=ONLY_SIGN), np.arctan2(-4, -3), id="nothing: the nearest agent"),
        pytest.param(
            MapFeatures(lanes=LANES, stop_signs=replace(ONLY_SIGN, controls=as_pairs([(0, 1)]))),
            np.pi / 2,
            id="the lane that it controls",
        ),
        pytest.param(
            MapFeatures(
                lanes=replace(
                    LANES,
                    centrelines=polylines([[0, 4], [9, 9]], [[50, 0], [50, 9], [50, 9]], [[70, 0], [90, 5]]),
                ),
                stop_signs=replace(ONLY_SIGN, controls=as_pairs([(0, 1)])),
            ),
            np.pi / 2,
            id="its lane ends with a repeated point",
        ),
        pytest.param(
            MapFeatures(
                lanes=LANES,
                road_edges=polylines([[3, 4], [3, 4], [3, 4]]),
                road_edge_types=np.zeros(1, np.int8),
            ),
            np.arctan2(5, 9),
            id="an edge that is but a point",
        ),
    ],
)
def test_pieces_without_extent_turn_with_the_scene(features: MapFeatures, heading_rad: float) -> None:
    scene = with_map(small_scene(), features)
    for angle_rad in (0.0, 1.1, -2.5):
        turned = moved(scene, angle_rad=angle_rad, shift_m=(7.0, -3.0))
        centres = rotate(MIDDLE, angle_rad).astype(np.float32) + np.array([7, -3], np.float32)
        segments, _ = segments_near(segment_map(turned.map, config=FEATURES), Signals(), 0, centres=centres)
        where = rotate(np.array([[3.0, 4.0]]), angle_rad)[0] + [7.0, -3.0]
        assert_same_poses(segments.pose[-1:], np.array([[*where, heading_rad + angle_rad]]))
        np.testing.assert_allclose(segments.points_m[-1], 0, atol=1e-5)


@pytest.mark.parametrize("scene", [*sample_scenes(), crowd(), small_scene(), bare_scene()], ids=lambda scene: scene.id)
def test_a_map_that_is_cut_once_serves_all_steps(scene: Scene) -> None:
    """Lights and agents change from step to step; the map that was cut beforehand is as good as one cut anew."""
    config = replace(FEATURES, max_distance_m=40.0)
    cut = segment_map(scene.map, config=config)
    before = cut.segments.pose.copy()
    for step in range(0, scene.num_steps, max(1, scene.num_steps // 5)):
        later = replace(scene, current_step=step)
        for agents in (observed(later, 1), observed(later)[-2:]):
            known = extract(later, agents, config=config, segmented_map=cut)
            assert_same_example(known, extract(later, agents, config=config))
            assert np.array_equal(known.segments.signal, extract(later, agents, config=config).segments.signal)
    np.testing.assert_array_equal(cut.segments.pose, before)


def test_a_map_without_directions_is_cut_once_too() -> None:
    """Its pieces look at the nearest agent, wherever that is."""
    scene = with_map(crowd(), MapFeatures(stop_signs=ONLY_SIGN))
    cut = segment_map(scene.map, config=FEATURES)
    for agent in observed(scene, 3):
        known = extract(scene, [agent], config=FEATURES, segmented_map=cut).segments
        towards = scene.tracks.position_m[agent, scene.current_step] - ONLY_SIGN.position_m[0]
        assert known.pose[0, 2] == pytest.approx(np.arctan2(towards[1], towards[0]), abs=1e-5)


@pytest.mark.parametrize("config", [FEATURES, replace(FEATURES, segment_length_m=9.0)])
def test_another_map_than_that_of_the_scene(config: FeatureConfig) -> None:
    scene = small_scene()
    cut = segment_map(scene.map if config != FEATURES else small_map(), config=config)
    with pytest.raises(FeatureError, match="the segmented map is not that of scene 'small', or was made with other"):
        extract(scene, [0], config=FEATURES, segmented_map=cut)


def test_no_map_and_no_history() -> None:
    example = extract(bare_scene(), [0], config=FEATURES)
    assert example.segments.points_m.shape == (0, FEATURES.points_per_segment, 2)
    batch = collate([example])
    assert batch.scene.segment_mask.tolist() == [
        [False] * 32
    ]  # masked places up to a round number, never an empty axis
    assert batch.scene.track_mask.tolist() == [[True] + [False] * 7]


def test_collating_pads_with_masked_zeros() -> None:
    scenes = [bare_scene(), small_scene(), crowd(), sample_scenes()[0]]
    examples = [extract(scene, observed(scene, 1 + index), config=FEATURES) for index, scene in enumerate(scenes)]
    batch = collate(examples)
    assert len(batch.scene.segment_mask) == 4
    assert batch.agents.reachability.any()
    assert batch.agents.mask.sum(dim=1).tolist() == [len(example.agents) for example in examples]
    for row, example in enumerate(examples):
        segments, tracks = len(example.segments.kind), len(example.track_kind)
        assert batch.scene.segment_mask[row].tolist() == [
            place < segments for place in range(batch.scene.segment_mask.shape[1])
        ]
        np.testing.assert_array_equal(batch.scene.segment_pose[row, :segments], example.segments.pose)
        np.testing.assert_array_equal(batch.scene.track_history[row, :tracks], example.history)
        assert not batch.scene.segment_points_m[row, segments:].any()
        assert not batch.scene.track_history[row, tracks:].any()
        assert not batch.future_valid[row, len(example.agents) :].any()
        reachability = batch.agents.reachability[row]
        np.testing.assert_array_equal(reachability[: len(example.agents), :segments], example.reachability)
        assert not reachability[len(example.agents) :].any()
        assert not reachability[:, segments:].any()


def test_collating_nothing() -> None:
    with pytest.raises(ValueError, match="no examples to collate"):
        collate([])


def test_a_batch_moves_to_a_device() -> None:
    batch = collate([extract(small_scene(), [0], config=FEATURES)])
    there = batch.to(torch.device("meta"))
    assert isinstance(there, Batch)
    assert {there.scene.segment_pose.device.type, there.agents.mask.device.type, there.future_valid.device.type} == {
        "meta"
    }
