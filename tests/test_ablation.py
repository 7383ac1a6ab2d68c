"""The ablation table: its variants differ from the recipe in one addition, and a stopped table continues."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from command_output import Output, complaint_of
from waycode.cli import main
from waycode.cli.tables import ablation_table
from waycode.demo import bundled_dataset
from waycode.evaluation import ablation
from waycode.evaluation.ablation import (
    FULL,
    PAPER,
    SEARCHED_WITHOUT,
    VARIANTS,
    WITH,
    WITHOUT,
    ablation_report,
    variant_config,
)
from waycode.evaluation.guidance import TASKS
from waycode.evaluation.report import Estimate
from waycode.evaluation.selection import Group
from waycode.objectives import LaneChange
from waycode.training.config import TrainingConfig, additions, override, small, tiny


@pytest.mark.parametrize("name", WITHOUT)
def test_a_variant_lacks_something_of_the_recipe(name: str) -> None:
    before, after = additions(small()), additions(override(small(), WITHOUT[name]))
    changed = [addition for addition in before if before[addition] != after[addition]]
    assert all(before[addition] for addition in changed)
    assert variant_config(name, steps=7).steps == 7
    assert replace(variant_config(name, steps=7), steps=1, validate_every=1) != variant_config(FULL, steps=1)


@pytest.mark.parametrize("name", WITH)
def test_a_variant_has_something_more(name: str) -> None:
    before, after = additions(small()), additions(variant_config(name, steps=7))
    assert [addition for addition in before if before[addition] != after[addition]] == [name]


def test_every_addition_has_a_variant() -> None:
    """But for the shared encoding, which is the form of the model, and the weighting of prefixes."""
    lost = set[str]()
    for settings in WITHOUT.values():
        after = additions(override(small(), settings))
        lost |= {name for name, is_on in additions(small()).items() if is_on and not after[name]}
    kept = {name for name, is_on in additions(small()).items() if is_on} - lost
    assert kept == {"one scene encoding for all agents, by relative poses", "expected nested dropout"}


def test_additions_to_the_search_are_switched_off() -> None:
    by_certainty, levels = SEARCHED_WITHOUT.values()
    assert not any(by_certainty(task).by_certainty for task in TASKS.values())
    changed = [name for name, task in TASKS.items() if levels(task) != task]
    assert changed == ["lane-change"]
    assert levels(TASKS["lane-change"]).objectives == {
        Group.ZERO: LaneChange(0, guided=False),
        Group.ONE: LaneChange(1, guided=False),
    }


def test_variants_are_trained_once_and_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def config(name: str, *, steps: int) -> TrainingConfig:
        return replace(tiny(), steps=steps, validate_every=steps, mirror=name == FULL)

    monkeypatch.setattr(ablation, "variant_config", config)
    sample, seen = bundled_dataset().folder, list[str]()

    def run(*names: str) -> ablation.AblationReport:
        return ablation_report(
            tmp_path, data=sample, validation=sample, crossings=sample, steps=2, variants=names, scenes=6,
            on_variant=seen.append,
        )  # fmt: skip

    first = run(FULL)
    weights = (tmp_path / "all-of-ours" / "model" / "model.safetensors").read_bytes()
    measured = list[Path]()
    measure = ablation.measure

    def noticed(model: Path, **options: Any) -> dict[str, Estimate]:
        measured.append(model)
        return measure(model, **options)

    monkeypatch.setattr(ablation, "measure", noticed)
    both = run(FULL, PAPER)
    assert measured == [tmp_path / "paper" / "model"]  # the other was measured before
    assert (tmp_path / "all-of-ours" / "model" / "model.safetensors").read_bytes() == weights
    assert both.rows[FULL] == first.rows[FULL]
    measured.clear()
    (name, *_) = SEARCHED_WITHOUT
    run(name)
    assert measured == [tmp_path / "all-of-ours" / "model"]
    assert seen == [FULL, FULL, PAPER, name]
    assert "greedy N_l = 2, 3 tokens" in both.rows[PAPER]
    assert any(name.endswith("edge_contact") for name in both.rows[PAPER])
    assert both.write(tmp_path).name == "ablation.json"
    assert ablation_table(both) is not None


def test_an_unknown_variant_is_one_sentence(tmp_path: Path, capsys: Output) -> None:
    sample = str(bundled_dataset().folder)
    folders = [sample, "--val", sample, "--crossings", sample, "--out", str(tmp_path / "out")]
    assert main(["ablate", *folders, "--only", "no wheels"]) == 2
    assert complaint_of(capsys).startswith("waycode: there is no variant 'no wheels'; available: all of ours, ")
    assert len(VARIANTS) == len(SEARCHED_WITHOUT) + len(WITHOUT) + len(WITH) + 2
