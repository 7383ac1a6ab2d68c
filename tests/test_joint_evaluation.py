"""Evaluations of joint models: guided joint futures."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import waycode as wc
import waycode.evaluation.consistency as consistency
import waycode.evaluation.joint as joint
import waycode.evaluation.joint_report as joint_report
import waycode.evaluation.yielding as yielding
from driving_scenes import sample_scenes
from scenes import small_scene
from tiny_model import tiny_model
from waycode.demo import bundled_dataset
from waycode.evaluation.guidance import RECORDED
from waycode.evaluation.pictures import save_joint, save_yielding
from waycode.evaluation.report import EvaluationError, Provenance
from waycode.evaluation.yielding import Yielding, best_example, crossing_pair
from waycode.features import FeatureConfig
from waycode.planner import Planner
from waycode.scene import Scene


def report(name: str, **changes: Any) -> joint_report.JointReport:
    model = tiny_model(**{"features": FeatureConfig(), "joint": True, "num_tokens": 3, **changes})
    provenance = Provenance.of(bundled_dataset(), model="tiny")
    return joint_report.joint_report(name, model, sample_scenes(4), provenance=provenance, agents_per_scene=3)


def test_guidance_and_its_refinement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint, "BEAM_WIDTH", 8)
    monkeypatch.setattr(joint, "REFINE_STEPS", 4)
    found = report("joint-guidance")
    assert list(found.rows) == [RECORDED, joint.SEARCH, joint.REFINED]
    search, refined = found.rows[joint.SEARCH], found.rows[joint.REFINED]
    assert search[joint.MIN_FDE].mean <= search[joint.MEAN_FDE].mean + 1e-4  # the beam holds what greedy search finds
    assert refined[joint.MEAN_FDE].mean <= search[joint.MEAN_FDE].mean + 1e-4
    assert found.rows[RECORDED][joint.OVERLAP].mean == 0
    assert 2 * found.num_scenes <= found.num_agents <= 3 * found.num_scenes


def test_the_error_is_a_mean_over_three_horizons() -> None:
    model = tiny_model(features=FeatureConfig(), joint=True, num_tokens=3)
    batch = next(
        joint.joint_batches(
            model, sample_scenes(4), choose=partial(joint.interacting, count=2), on_scenes=lambda _: None
        )
    )
    late_m = batch.future_m.clone()
    late_m[:, 50:, 0] += 8.0  # after 5 s: 0 up to the horizons of 3 and 5 s, 8 m in 30 of 80 steps up to that of 8 s
    batch = replace(batch, valid=torch.ones_like(batch.valid))
    error_m = batch.error_m(torch.stack([batch.future_m, late_m], dim=1))
    assert torch.allclose(error_m, torch.tensor([0.0, 1.0]).expand(len(batch.scenes), 2), atol=1e-5)


def test_deeper_search_comes_nearer_to_the_goals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint, "BEAM_WIDTH", 8)
    found = report("depth-sweep").rows
    assert list(found) == ["1 token", "2 tokens", "3 tokens"]
    assert found["3 tokens"][joint.MIN_FDE].mean < found["1 token"][joint.MIN_FDE].mean


def test_search_beside_gradient_steps_from_random_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint, "_OPTIMISED", ((2, 1), (2, 3)))
    monkeypatch.setattr(joint, "REFINE_STEPS", 2)
    found = report("search-vs-optimisation").rows
    assert list(found) == [joint.SEARCH, joint.REFINED, "2 steps from 1 random start", "2 steps from 3 random starts"]
    assert all(measures["seconds_per_scene"].mean > 0 for measures in found.values())


def test_agents_without_a_goal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(joint, "BEAM_WIDTH", 4)
    found = report("joint-consistency")
    same, moved = found.rows.values()
    assert same[consistency.OTHERS_MOVED].mean == 0  # compared with itself
    assert moved[consistency.OTHERS_MOVED].mean > 0  # their tokens are searched together with the guided agent's
    for measures in (same, moved):
        assert measures[consistency.GUIDED_FDE].mean > 0
        assert 0 <= measures[joint.OVERLAP].mean <= 1
        assert 0 <= measures[consistency.OVERLAP_RECORDED].mean <= 1
    assert found.file_name == "joint-consistency-3-agents.json"
    save_joint(found, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def crossing_scene(*, walker_x_m: float = 20.0) -> Scene:
    """The car of `small_scene` drives along x at 5 m/s, the pedestrian walks over its way at `walker_x_m`."""
    scene = small_scene(num_steps=82)
    time_s = (np.arange(82, dtype=np.float32) - 1) * 0.1
    x_m, y_m = scene.tracks.x_m.copy(), scene.tracks.y_m.copy()
    x_m[0], y_m[0] = 5 * time_s, 0
    x_m[1], y_m[1] = walker_x_m, time_s - 4
    return replace(scene, tracks=replace(scene.tracks, x_m=x_m, y_m=y_m))


def test_the_pair_whose_ways_cross() -> None:
    assert crossing_pair(crossing_scene()) == [1, 0]
    assert crossing_pair(crossing_scene(walker_x_m=4.0)) == []  # too near to the car
    assert crossing_pair(crossing_scene(walker_x_m=60.0)) == []  # beyond the end of the drive


def test_a_vehicle_beside_a_pedestrian_who_crosses_or_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(joint, "BEAM_WIDTH", 4)
    scene, model = wc.load_scene("sample-crossings", 10), tiny_model(features=FeatureConfig(), joint=True, num_tokens=3)
    provenance = Provenance.of(bundled_dataset(), model="tiny")
    found = joint_report.joint_report("joint-yielding", model, [scene, *sample_scenes(2)], provenance=provenance)
    assert (found.num_scenes, found.num_agents) == (1, 2)  # the other scenes have no such pair
    assert list(found.rows) == [yielding.CROSSES, yielding.STAYS]
    for measures in found.rows.values():
        assert measures[yielding.VEHICLE_DRIVES].mean > 0
    save_joint(found, tmp_path / "chart.png")
    pair = crossing_pair(scene)
    save_yielding(Yielding.of(Planner(model), scene, (pair[0], pair[1])), tmp_path / "example.png")
    for name in ("chart.png", "example.png"):
        assert (tmp_path / name).stat().st_size > 10_000
    assert best_example(Planner(model), sample_scenes(2)) is None


def test_a_model_with_a_code_per_agent_is_refused() -> None:
    with pytest.raises(EvaluationError, match="every agent on its own, expected a joint model"):
        report("joint-guidance", joint=False)
