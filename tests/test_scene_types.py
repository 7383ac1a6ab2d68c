"""The parts of a scene: they cannot be changed, and polylines and relations are what they were made of."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenes import bare_scene, small_map, small_scene, small_tracks
from waycode.scene import Lanes, MapFeatures, Polylines, Signals, StopSigns, as_pairs, no_pairs


@pytest.mark.parametrize(
    "part", [small_scene(), small_tracks(), small_map(), small_map().lanes, small_scene().signals, small_scene().route]
)
def test_parts_are_frozen(part: object) -> None:
    for field in dataclasses.fields(part):  # type: ignore[arg-type]
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(part, field.name, None)


@given(st.lists(st.integers(0, 5), max_size=6))
def test_polylines_give_back_what_they_were_made_of(lengths: list[int]) -> None:
    given_m = [np.full((length, 2), index, np.float32) for index, length in enumerate(lengths)]
    polylines = Polylines.of(given_m)
    assert len(polylines) == len(given_m)
    for one, other in zip(polylines.as_list(), given_m, strict=True):
        np.testing.assert_array_equal(one, other)
    assert polylines.points_m.dtype == np.float32
    assert polylines.starts.dtype == np.int32


@pytest.mark.parametrize("index", [-1, 2, 100])
def test_polylines_refuse_an_index_outside(index: int) -> None:
    with pytest.raises(IndexError, match=f"polyline {index} of 2"):
        Polylines.of([np.zeros((2, 2)), np.zeros((3, 2))])[index]


def test_pairs_are_sorted_and_distinct() -> None:
    assert as_pairs([(2, 1), (0, 3), (2, 1)]).tolist() == [[0, 3], [2, 1]]
    assert as_pairs([]).shape == no_pairs().shape == (0, 2)


def test_lane_relations_by_lane() -> None:
    lanes = dataclasses.replace(small_map().lanes, successors=as_pairs([(0, 2), (1, 2), (0, 1)]))
    assert lanes.graph.successors == ((1, 2), (2,), ())
    assert lanes.graph.predecessors == ((), (0,), (0, 1))
    assert lanes.graph is lanes.graph
    assert dataclasses.replace(lanes, successors=no_pairs()).graph.successors == ((), (), ())


def test_tracks_have_positions_and_speeds() -> None:
    tracks = small_tracks(5)
    assert len(tracks) == 4
    assert tracks.num_steps == 5
    assert tracks.position_m.shape == (4, 5, 2)
    assert tracks.position_m[0, 2].tolist() == [2.0, 0.0]
    np.testing.assert_array_equal(tracks.speed_mps[0], 10.0)
    assert tracks.speed_mps[3, 1] == 0.0


def test_what_is_left_out_is_empty() -> None:
    assert len(Lanes()) == len(StopSigns()) == len(Signals()) == 0
    assert len(MapFeatures().road_edges) == 0
    assert bare_scene().route is None
