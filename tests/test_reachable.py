"""Which lanes lead on from where a road user is."""

import numpy as np
import pytest

from test_guidance_selection import APPROACH, EXIT, STRAIGHT, TURN, crossing
from test_manoeuvre import lanes_of
from tiny_model import FEATURES, sample_scenes
from waycode.features import collate, extract, segment_map
from waycode.features.reachable import BY_CHANGING, BY_FOLLOWING, UNREACHABLE, reachable
from waycode.scene import Lanes, MapFeatures, as_pairs


def reach(lanes: Lanes, *pose: float) -> dict[int, float]:
    """How each lane can be reached from x, y, heading; all pieces of a lane alike."""
    cut = segment_map(MapFeatures(lanes=lanes), config=FEATURES)
    (row,) = reachable(lanes, cut.segments.placed_m, cut.lane, poses=np.array([pose], np.float64))
    found: dict[int, set[float]] = {}
    for lane, value in zip(cut.lane.tolist(), row.tolist(), strict=True):
        found.setdefault(lane, set()).add(value)
    return {lane: values.pop() for lane, values in found.items() if len(values) == 1}


@pytest.mark.parametrize(
    ("legal", "pose", "expected"),
    [
        pytest.param(True, (-20, 0.5, 0.1), {APPROACH: 1, STRAIGHT: 1, TURN: 1, EXIT: 1}, id="all ways are open"),
        pytest.param(False, (-20, 0.5, 0.1), {APPROACH: 1, STRAIGHT: 1, TURN: 0, EXIT: 1}, id="the turn is not legal"),
        pytest.param(True, (60, 0, 0), {APPROACH: 0, STRAIGHT: 0, TURN: 0, EXIT: 1}, id="no way leads back"),
        pytest.param(True, (-20, 0, np.pi), dict.fromkeys(range(4), 0), id="the wrong way"),
        pytest.param(True, (-20, 30, 0), dict.fromkeys(range(4), 0), id="far from every lane"),
        pytest.param(True, (-20, 4, 0), dict.fromkeys(range(4), 1), id="beside a lane"),
    ],
)
def test_by_hand(legal: bool, pose: tuple[float, float, float], expected: dict[int, float]) -> None:
    assert reach(crossing(legal=legal), *pose) == expected


def test_neighbours_are_reached_by_changing() -> None:
    along = np.linspace(0, 60, 31)
    lines = [np.stack([along, np.full(31, offset)], axis=-1) for offset in (0.0, 3.5, 7.0)]
    lanes = lanes_of(lines, successors=as_pairs([]), left_neighbours=as_pairs([(0, 1)]))
    assert reach(lanes, 10.0, 0.0, 0.0) == {0: BY_FOLLOWING, 1: BY_CHANGING, 2: UNREACHABLE}
    assert reach(lanes, 10.0, 3.5, 0.0) == {0: UNREACHABLE, 1: BY_FOLLOWING, 2: UNREACHABLE}
    assert reach(lanes, 10.0, 1.75, 0.0) == {
        0: BY_FOLLOWING,
        1: BY_FOLLOWING,
        2: UNREACHABLE,
    }  # on both


def test_a_map_without_lanes_leads_nowhere() -> None:
    nothing = reachable(Lanes(), np.zeros((0, 6, 2)), np.zeros(0, np.int64), poses=np.zeros((2, 3)))
    assert nothing.shape == (2, 0)


def test_padding_keeps_agents_and_segments_apart() -> None:
    scenes = sample_scenes()[:2]
    examples = [
        extract(scene, [scene.tracks.ego_index or 0, *extra], config=FEATURES)
        for scene, extra in zip(scenes, ([], [int(scenes[1].tracks.to_predict[1])]), strict=True)
    ]
    batch = collate(examples)
    assert batch.agents.reachability.shape == (2, 2, batch.scene.segment_mask.shape[1])
    for row, example in enumerate(examples):
        agents, segments = example.reachability.shape
        assert example.reachability.max() == BY_FOLLOWING  # an ego is on a lane
        np.testing.assert_array_equal(batch.agents.reachability[row, :agents, :segments], example.reachability)
        assert batch.agents.reachability[row, agents:].sum() == batch.agents.reachability[row, :, segments:].sum() == 0
