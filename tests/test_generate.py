"""New scenarios from a scene."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tiny_model import crowd, observed, tiny_model
from waycode.cli import main
from waycode.dataset.dataset import Dataset, save_scene
from waycode.model import VarianceGate
from waycode.model.saved import save_model
from waycode.planner import Planner
from waycode.planner.scenario import _overlaps, generate_scenarios

TOKENS = 4


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A scene and a joint model."""
    folder = tmp_path_factory.mktemp("generate")
    save_scene(crowd(), folder / "scene.parquet")
    model = tiny_model(joint=True, num_tokens=TOKENS)
    save_model(
        folder / "model",
        model,
        gate=VarianceGate(sigma_max_m=dict.fromkeys(range(1, TOKENS + 1), 9.0)),
        card="# A model",
    )
    return folder / "scene.parquet", folder / "model"


def agents() -> list[str]:
    return [crowd().tracks.ids[track] for track in observed(crowd(), 3)]


def test_scenarios_are_different_futures_of_the_chosen_agents_only() -> None:
    view = Planner(tiny_model(joint=True, num_tokens=TOKENS)).encode(crowd(), agents=agents())
    for objective in (None, f"agent({agents()[0]}): goal-point(0, 0)"):
        found = generate_scenarios(view, objective, count=4, beam_width=8)
        assert len({one.plan.tokens for one in found}) > 1
        assert [one.scene.id for one in found] == [f"{crowd().id}-{number}" for number in range(1, 5)]
        planned = [setting.agent for setting in view.settings]
        others = [track for track in range(len(crowd().tracks)) if track not in planned]
        for one in found:
            assert np.array_equal(one.scene.tracks.x_m[others], crowd().tracks.x_m[others])
    costs = [one.plan.levels[0] for one in found]
    assert costs == sorted(costs)


def test_overlaps_that_the_recording_did_not_have_are_faults() -> None:
    view = Planner(tiny_model(joint=True, num_tokens=TOKENS)).encode(crowd(), agents=agents())
    assert _overlaps(crowd(), view) == []
    tracks, (first, second) = crowd().tracks, observed(crowd(), 2)
    onto = {name: getattr(tracks, name).copy() for name in ("x_m", "y_m", "valid")}
    for values in onto.values():
        values[first, crowd().current_step + 1 :] = values[second, crowd().current_step + 1 :]
    found = _overlaps(replace(crowd(), tracks=replace(tracks, **onto)), view)
    assert any(f"{agents()[0]} and {agents()[1]} overlap for" in fault for fault in found)


def test_the_command_writes_a_dataset_with_pictures(
    files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene, model = files
    out = tmp_path / "new"
    command = f"generate {scene} --model {model} --out {out} --count 2 --json --agents {' '.join(agents())}"
    assert main([*command.split(), "--objective", f"agent({agents()[1]}): goal-point(3, 4) + all: no-collision"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [row["scene"] for row in printed] == [f"{crowd().id}-1", f"{crowd().id}-2"]
    assert len(Dataset(out)) == 2
    assert sorted(path.name for path in out.glob("*.png")) == [
        f"scenario-{number}-{crowd().id}.png" for number in (1, 2)
    ]
    assert Dataset(out).info.settings["agents"] == agents()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--agents nobody", "has no agent 'nobody'"),
        ("--agents {agent} {agent}", "is given twice"),
        ("--objective comfort", "comfort is about one agent, and several are planned for"),
        ("--count 0", "count is 0, expected at least 1"),
        ("--model sumo-small", "expected a joint one"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: str, sentence: str, files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene, model = files
    given = arguments.format(agent=agents()[0])
    chosen = "" if "--model" in given else f"--model {model}"
    assert main(f"generate {scene} {chosen} --out {tmp_path / 'new'} {given}".split()) == 2
    complaint = capsys.readouterr().err
    assert sentence in complaint
    assert complaint.count("\n") == 1
    assert not (tmp_path / "new").exists()
