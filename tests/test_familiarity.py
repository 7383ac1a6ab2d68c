"""Whether the gate notices scenes of a kind that the model does not know."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from command_output import json_of
from tiny_model import sample_scenes, tiny_model
from waycode import Planner
from waycode.cli import main
from waycode.demo import bundled_dataset
from waycode.evaluation.familiarity import BROKEN_MAPS, broken, measure_scenes
from waycode.model.saved import save_model
from waycode.planner import PlannerError, PlanStatus
from waycode.planner.familiarity import FALSE_ALARMS, FAMILIARITY_FILE, Familiarity, SceneMeasures, measure_scene

Output = pytest.CaptureFixture[str]


def scenes_around(centre: float, *, count: int, seed: int, off_lane: float = 0.0) -> list[SceneMeasures]:
    """Embeddings of four numbers, normally distributed."""
    random = np.random.default_rng(seed)
    return [
        SceneMeasures(embedding=random.normal(centre, 1, 4), num_tokens=50, off_lane=off_lane) for _ in range(count)
    ]


def test_one_in_twenty_known_scenes_and_nearly_all_others_are_noticed() -> None:
    known = Familiarity.fit(scenes_around(0.0, count=2000, seed=0), scenes_around(0.0, count=2000, seed=1))
    fresh = [known.doubt(scene) is not None for scene in scenes_around(0.0, count=2000, seed=2)]
    assert np.mean(fresh) == pytest.approx(FALSE_ALARMS / 2, abs=0.01)  # the other half is for the lanes
    assert np.mean([known.doubt(scene) is not None for scene in scenes_around(5.0, count=100, seed=3)]) == 1
    (lost,) = scenes_around(0.0, count=1, seed=4, off_lane=0.75)
    assert known.doubt(lost) == "75 % of the vehicles nearby are on no lane of the map"
    assert known.doubt(replace(lost, num_tokens=1)) == "only 1 map segments and road users are near"
    (far,) = scenes_around(50.0, count=1, seed=5)
    assert "from those of training, above" in (known.doubt(far) or "")


def test_too_few_scenes_are_refused() -> None:
    with pytest.raises(PlannerError, match=r"got 7 scenes of training and 1 others .* at least two times 4"):
        Familiarity.fit(scenes_around(0.0, count=7, seed=0), scenes_around(0.0, count=1, seed=1))
    with pytest.raises(PlannerError, match="got 9 scenes of training and 0 others"):
        Familiarity.fit(scenes_around(0.0, count=9, seed=0), [])


@pytest.mark.parametrize("name", ["map shifted by 10 m", "map turned by 30 degrees"])
def test_vehicles_on_no_lane_are_counted(name: str) -> None:
    planner, scene = Planner(tiny_model()), sample_scenes()[3]
    (whole,), (other,) = (
        [measure_scenes(planner, [one])[0]]
        for one in (scene, broken(scene, BROKEN_MAPS[name], np.random.default_rng(0)))
    )
    assert whole.off_lane < 0.3
    assert other.off_lane > whole.off_lane + 0.3


def test_a_plan_in_an_unknown_scene_is_uncertain() -> None:
    scene = sample_scenes()[3]
    unsure = Planner.from_pretrained("sumo-small")
    view = unsure.encode(scene)
    width = len(measure_scene(view.embedding, view.setting).embedding)
    nothing_known = Familiarity(
        mean=np.full(width, 100.0), precision=np.eye(width), max_distance=np.array(1.0), max_off_lane=np.array(1.0)
    )
    view = replace(unsure, familiarity=nothing_known).encode(scene)
    plan = view.plan("terminal-variance")
    assert (plan.status, plan.rejected) == (PlanStatus.UNCERTAIN, False)
    assert "the scene is unlike those that the model knows (its embedding is" in plan.message
    assert view.decode([1, 2]).status == PlanStatus.UNCERTAIN
    assert view.plan("terminal-variance", gate=False).status == PlanStatus.FOUND
    assert replace(unsure, familiarity=None).encode(scene).doubt is None


def test_the_file_belongs_to_the_weights(tmp_path: Path) -> None:
    known = Familiarity.fit(scenes_around(0.0, count=20, seed=0), scenes_around(0.0, count=20, seed=1))
    save_model(tmp_path, tiny_model())
    assert Familiarity.load(tmp_path) is None
    known.save(tmp_path)
    again = Familiarity.load(tmp_path)
    assert again is not None
    np.testing.assert_array_equal(again.precision, known.precision)
    assert (again.max_distance, again.max_off_lane) == (known.max_distance, known.max_off_lane)
    assert Planner.from_pretrained(tmp_path).familiarity is not None
    save_model(tmp_path, tiny_model(seed=1))
    assert Familiarity.load(tmp_path) is None
    (tmp_path / FAMILIARITY_FILE).write_bytes(b"damaged")
    with pytest.raises(PlannerError, match="run `waycode calibrate` again"):
        Familiarity.load(tmp_path)


def test_the_command_measures_and_writes(tmp_path: Path, capsys: Output) -> None:
    folder = str(bundled_dataset().folder)
    save_model(tmp_path / "model", tiny_model())
    arguments = ["calibrate", folder, folder, "--model", str(tmp_path), "--other", folder, "--json"]
    assert main([*arguments, "--scenes", "20"]) == 0
    found = json_of(capsys)
    assert Path(found["file"]).is_file()
    shares = {one["scenes"]: one["num_noticed"] / one["num_views"] for one in found["detections"]}
    assert shares["without a map"] == 1
    assert len(shares) == len(BROKEN_MAPS) + 3
