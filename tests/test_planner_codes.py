"""Codes of trajectories: encoding, decoding, carrying them from scene to scene, and finding the same manoeuvre."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tiny_model import sample_scenes
from waycode import Planner
from waycode.features import collate, extract
from waycode.planner import ManoeuvreIndex, PlannerError, TokenCode, View, build_index, recorded_agents


@pytest.fixture(scope="module")
def planner() -> Planner:
    return Planner.from_pretrained("sumo-small")


@pytest.fixture(scope="module")
def view(planner: Planner) -> View:
    return planner.encode(sample_scenes()[3])


@pytest.fixture(scope="module")
def index(planner: Planner) -> ManoeuvreIndex:
    return build_index(sample_scenes()[:4], planner)


def test_the_recorded_future_is_encoded_as_in_training(planner: Planner) -> None:
    model = deepcopy(planner.model)
    model.config = replace(model.config, polish=False)  # in training there is no polish
    planner = Planner(model)
    for scene in sample_scenes()[:3]:
        view = planner.encode(scene)
        batch = collate([extract(scene, [view.agent], config=planner.model.config.features)])
        with torch.no_grad():
            wanted = planner.model.encode(batch.future_m[0], batch.future_valid[0], view.embedding)[0]
        code = view.encode_trajectory(levels=None)
        assert code.ids is None
        np.testing.assert_allclose(code.latents, wanted.numpy(), atol=1e-5)
        rounded = view.encode_trajectory().latents
        np.testing.assert_array_equal(np.abs(rounded), 1)
        np.testing.assert_array_equal(rounded[0], np.sign(code.latents[0]))  # later ones answer to the rounding


def test_given_positions_are_the_same_as_the_recorded_ones(view: View) -> None:
    scene = view.scene
    steps = slice(scene.current_step + 1, scene.current_step + 81)
    position, valid = scene.tracks.position_m[view.agent, steps], scene.tracks.valid[view.agent, steps]
    recorded = view.encode_trajectory(levels=None)
    np.testing.assert_array_equal(view.encode_trajectory(position, valid, levels=None).latents, recorded.latents)
    hidden = np.where(np.arange(len(valid))[:, None] < 40, position, np.float32(np.nan))
    half = view.encode_trajectory(hidden, np.arange(len(valid)) < 40, levels=None)
    np.testing.assert_array_equal(half.latents, view.encode_trajectory(position[:40], levels=None).latents)


def test_a_swap_of_a_scene_with_itself_decodes_its_own_code(view: View) -> None:
    code = view.encode_trajectory()
    assert code.ids is not None
    swapped, by_ids, by_latents = view.decode(code), view.decode(code.ids), view.decode(code.latents)
    np.testing.assert_array_equal(swapped.x_m, by_ids.x_m)
    np.testing.assert_array_equal(swapped.x_m, by_latents.x_m)
    assert swapped.tokens == by_ids.tokens == code.ids
    assert by_latents.tokens is None
    recorded = view.scene.tracks.position_m[view.agent, view.scene.current_step + 1 :][:80]
    assert (
        np.linalg.norm(swapped.position_in(view.scene) - recorded, axis=1).mean() < 4.0
    )  # of some 80 m: bits are coarse


def test_a_code_means_the_same_wherever_it_was_made(planner: Planner, view: View) -> None:
    other = planner.encode(sample_scenes()[2])
    code = other.encode_trajectory()
    np.testing.assert_array_equal(view.decode(code).y_m, view.decode(torch.tensor(code.ids)).y_m)


def test_more_levels_have_other_ids(view: View) -> None:
    code = view.encode_trajectory(levels=3)
    assert code.levels == 3
    assert set(np.unique(code.latents)) <= {-1.0, 0.0, 1.0}
    np.testing.assert_array_equal(view.decode(code.ids or (), levels=3).x_m, view.decode(code).x_m)


def test_the_first_tokens_are_a_code_too(view: View) -> None:
    code = view.encode_trajectory()
    assert view.decode(code.first(2)).tokens == (code.ids or ())[:2]
    assert code.first(None).ids == code.ids
    with pytest.raises(PlannerError, match="asked for 4 tokens, expected 1 to 3"):
        code.first(4)


@pytest.mark.parametrize(
    ("tokens", "sentence"),
    [
        ([8], r"token ids \[8\] are out of range: 2 levels in 3 dimensions have the ids 0 to 7"),
        ([-1, 2], r"token ids \[-1\] are out of range"),
        ([], "got 0 tokens, expected 1 to 3"),
        ([1, 1, 1, 1], "got 4 tokens, expected 1 to 3"),
        (np.array([0.5, 1.0]), r"shape \[2\] and type float64, expected ids \[n\]"),
        (np.zeros((2, 2)), r"shape \[2, 2\], expected \[n, 3\]"),
        (np.zeros((0, 3)), "got 0 tokens"),
        (np.full((1, 3), 1.5), r"go up to 1.5, expected numbers in \[-1, 1\]"),
        (np.full((1, 3), np.nan), "go up to nan"),
        (np.zeros((1, 1, 3)), "expected ids"),
        (TokenCode(latents=np.zeros((4, 3)), ids=None, levels=None), "got 4 tokens"),
    ],
)
def test_codes_that_do_not_fit_are_refused(tokens: Any, sentence: str, view: View) -> None:
    with pytest.raises(PlannerError, match=sentence):
        view.decode(tokens)


@pytest.mark.parametrize(
    ("position", "valid", "sentence"),
    [
        (np.zeros((81, 2)), None, "at most 80 steps"),
        (np.zeros((3, 2)), np.zeros(3, np.bool_), "no valid step"),
        (np.full((3, 2), np.nan), None, "not finite"),
        (np.zeros((0, 2)), None, "no valid step"),
    ],
)
def test_trajectories_that_cannot_be_encoded_are_refused(
    position: np.ndarray, valid: np.ndarray | None, sentence: str, view: View
) -> None:
    with pytest.raises(PlannerError, match=sentence):
        view.encode_trajectory(position, valid)


def test_the_index_has_the_codes_of_all_tracks_to_predict(index: ManoeuvreIndex, planner: Planner) -> None:
    assert set(index.scene_ids) == {scene.id for scene in sample_scenes()[:4]}
    views = [view for scene in sample_scenes()[:4] for view in planner.encode_agents(scene, recorded_agents(scene))]
    for row, view in enumerate(views):
        entry = index.entry(row)
        assert (view.scene.id, view.setting.agent_id) == (entry.scene_id, entry.agent_id)
        np.testing.assert_allclose(index.latents[row], view.encode_trajectory(levels=None).latents, atol=1e-4)
    assert len(views) == len(index)


def test_the_nearest_of_a_manoeuvre_is_itself_and_distances_rise(index: ManoeuvreIndex) -> None:
    found = index.nearest(index.latents[5], 4)
    assert (found[0].scene_id, found[0].agent_id) == (index.scene_ids[5], index.agent_ids[5])
    distances = [entry.distance for entry in found]
    assert distances == sorted(distance for distance in distances if distance is not None)
    assert distances[0] == 0
    everything = np.linalg.norm(index.latents - index.latents[5], axis=(1, 2))
    assert distances[3] == pytest.approx(np.sort(everything)[3])
    assert index.nearest(index.latents[5][:1], 1)[0].distance == 0
    assert len(index.nearest(index.latents[0], 10_000)) == len(index)


def test_prefixes_split_the_index(index: ManoeuvreIndex) -> None:
    first = [index.find(prefix=[token]) for token in range(8)]
    assert sum(map(len, first)) == len(index)
    longest = max(first, key=len)
    token = longest[0].tokens[0]
    assert sum(len(index.find(prefix=[token, after])) for after in range(8)) == len(longest)
    assert all(entry.tokens[0] == token for entry in longest)


def test_the_index_survives_its_file(index: ManoeuvreIndex, tmp_path: Path) -> None:
    index.save(tmp_path / "index.parquet")
    again = ManoeuvreIndex.load(tmp_path / "index.parquet")
    np.testing.assert_array_equal(again.latents, index.latents)
    assert [again.entry(row) for row in range(len(again))] == [index.entry(row) for row in range(len(index))]
    assert again.levels == 2


def test_an_empty_index_is_empty(planner: Planner, tmp_path: Path) -> None:
    scene = sample_scenes()[0]
    nobody = replace(scene, tracks=replace(scene.tracks, to_predict=np.zeros(0, np.int32)))
    empty = build_index([nobody], planner)
    empty.save(tmp_path / "empty.parquet")
    assert len(ManoeuvreIndex.load(tmp_path / "empty.parquet")) == len(empty) == 0
    assert empty.find(prefix=[1]) == []


def test_what_is_not_in_the_index_is_one_sentence(index: ManoeuvreIndex, tmp_path: Path) -> None:
    with pytest.raises(PlannerError, match="no scene 'x'; it has 4 others"):
        index.row_of("x", "y")
    with pytest.raises(PlannerError, match=f"no agent 'y' .* available: {index.agent_ids[0]}"):
        index.row_of(index.scene_ids[0], "y")
    with pytest.raises(PlannerError, match="0 tokens, expected 1 to 3"):
        index.find(prefix=[])
    with pytest.raises(PlannerError, match="expected 0 to 7"):
        index.find(prefix=[8])
    with pytest.raises(PlannerError, match=r"expected \[1 to 3, 3\]"):
        index.nearest(np.zeros((2, 2)), 1)
    with pytest.raises(PlannerError, match="asked for 0 manoeuvres"):
        index.nearest(np.zeros((2, 3)), 0)
    (tmp_path / "no.parquet").write_text("no")
    with pytest.raises(PlannerError, match="is not an index"):
        ManoeuvreIndex.load(tmp_path / "no.parquet")
