"""The ablation table: what each addition of ours is worth, at equal budget.

Every variant is the recipe with one addition switched off (or on), trained from nothing with the same data, seed and
number of steps, and measured by the same tables. `paper` has none of them. Additions to the search are switched off
when the model of the whole recipe is measured.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from waycode.dataset.dataset import Dataset
from waycode.dataset.files import replace_file
from waycode.dataset.seeds import check_not_test
from waycode.evaluation.guidance import (
    ALL_CROSSINGS,
    SUCCESS,
    TASKS,
    AnsweredCase,
    GuidanceTask,
    answer_dataset,
    greedy,
    left_turn_part,
)
from waycode.evaluation.reconstruction import TABLE_METHODS, ReconstructionFigures, reconstruction_errors
from waycode.evaluation.report import Estimate, Provenance, Report, evenly_chosen
from waycode.evaluation.selection import Group
from waycode.model.saved import MODEL_FOLDER, load_model
from waycode.objectives import LaneChange
from waycode.planner.familiarity import weights_sha256
from waycode.training.config import TrainingConfig, override, small, small_paper
from waycode.training.run import Hooks, last_step, train

FULL, PAPER = "all of ours", "paper"
# Name of a variant -> settings that differ from the recipe, by which an addition is switched off.
WITHOUT: dict[str, tuple[str, ...]] = {
    "no orthogonal steps": ("optimiser=adamw",),
    "no tightening noise target": ("noise.final_target_ade_m=none",),
    "no feedback to the encoder": ("model.feedback=false", "model.polish=false"),
    "no polish of continuous codes": ("model.polish=false",),
    "gate by the magnitude of the standard deviation": ("gate_spread=both",),
    "no search in the loop": ("searched_share=0", "teaching_weight=0", "prior_weight=0", "model.prior=false"),
    "no teaching of the encoder": ("teaching_weight=0",),
    "no rounded share": ("noise.rounded_share=0",),
    "one output per step": ("model.spline_points=none",),
    "no reachability input": ("model.reachability=false",),
    "no path and acceleration losses": ("path_weight=0", "acceleration_weight=0"),
    "no realism loss": ("realism_weight=0",),
    "no alternatives": ("alternative_share=0",),
    "no mirroring": ("mirror=false",),
    "no balancing": ("balance=false",),
}
WITH = {  # switched on
    "map correction": ("model.correction_width=64",),
    "preview of the next token": ("model.preview=true",),
}


def _without_second_level(task: GuidanceTask) -> GuidanceTask:
    """The task with the paper's levels of `lane-change`; any other task as it is."""
    objectives = {
        group: replace(objective, guided=False) if isinstance(objective, LaneChange) else objective
        for group, objective in task.objectives.items()
    }
    return replace(task, objectives=objectives)


# Name of a variant -> the task of a table, searched without an addition; the model is that of `FULL`.
SEARCHED_WITHOUT: dict[str, Callable[[GuidanceTask], GuidanceTask]] = {
    "ties not broken by certainty": lambda task: replace(task, by_certainty=False),
    "lane change without its second level": _without_second_level,
}
VARIANTS = (FULL, *SEARCHED_WITHOUT, *WITHOUT, *WITH, PAPER)
_EDGE = "edge_contact"


@dataclass(frozen=True, kw_only=True)
class AblationReport(Report):
    """A row per variant: measures by name."""

    steps: int  # of training, for every variant
    training_data: str
    training_sha256: str  # of the settings of the training data
    rows: dict[str, dict[str, Estimate]]

    @property
    def file_name(self) -> str:
        return "ablation.json"


def variant_config(name: str, *, steps: int) -> TrainingConfig:
    """The configuration of a variant of `VARIANTS`.

    Args:
        name: of the variant.
        steps: of training; validation is left to the end.
    """
    config = small_paper() if name == PAPER else override(small(), (WITHOUT | WITH).get(name, ()))
    return replace(config, steps=steps, validate_every=steps)


def ablation_report(
    out: Path,
    *,
    data: Path,
    validation: Path,
    crossings: Path,
    steps: int,
    variants: tuple[str, ...] = VARIANTS,
    scenes: int | None = None,
    workers: int = 1,
    cache: Path | None = None,
    on_variant: Callable[[str], None] = lambda name: None,
    hooks: Hooks | None = None,
) -> AblationReport:
    """Trains and measures the variants. A stopped call continues where it was.

    Args:
        out: folder with a run per variant.
        data: dataset to train on.
        validation: dataset of a development seed for all tables but left turns.
        crossings: dataset of a development seed for left turns.
        steps: of training, for each variant.
        variants: names of `VARIANTS`.
        scenes: number of scenes of each table; None: all.
        workers: processes that plan.
        cache: folder of prepared examples.
        on_variant: called with the name of each variant before it is trained.
        hooks: progress of the training, and requests to stop.
    """
    training = Dataset(data)
    for dataset in (training, Dataset(validation), Dataset(crossings)):
        check_not_test(dataset)  # before hours of training
    rows = {}
    for name in variants:
        on_variant(name)
        trained = FULL if name in SEARCHED_WITHOUT else name
        run = out / _slug(trained)
        if last_step(run) < steps:
            config = variant_config(trained, steps=steps)
            train(
                config, data=data, validation=validation, out=run,
                validate=ReconstructionFigures(spread=config.gate_spread), resume=run.exists(), cache=cache,
                hooks=hooks,
            )  # fmt: skip
        rows[name] = _measured_once(
            name, out, run, validation=validation, crossings=crossings, scenes=scenes, workers=workers
        )
    return AblationReport(
        provenance=Provenance.of(Dataset(validation), model=f"variants in {out}"),
        steps=steps,
        training_data=str(data),
        training_sha256=training.info.settings_sha256,
        rows=rows,
    )


def _slug(name: str) -> str:
    return name.replace(" ", "-")


def _measured_once(
    name: str, out: Path, run: Path, *, validation: Path, crossings: Path, scenes: int | None, workers: int
) -> dict[str, Estimate]:
    """`measure` of a variant, kept in the folder of all runs: a stopped table does not measure a variant again."""
    of = {
        "weights_sha256": weights_sha256(run / MODEL_FOLDER),
        "scenes": scenes,
        "settings_sha256": [Dataset(folder).info.settings_sha256 for folder in (validation, crossings)],
    }
    path = out / f"{_slug(name)}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):  # none yet, or not such a file: measured again
        kept = json.loads(path.read_text())
        if kept["of"] == of:
            return {measure_name: Estimate(**estimate) for measure_name, estimate in kept["rows"].items()}
    rows = measure(
        run / MODEL_FOLDER, validation=validation, crossings=crossings, scenes=scenes, workers=workers,
        change=SEARCHED_WITHOUT.get(name, lambda task: task),
    )  # fmt: skip
    content = {"of": of, "rows": {measure_name: asdict(estimate) for measure_name, estimate in rows.items()}}
    replace_file(path, lambda temporary: temporary.write_text(json.dumps(content, indent=1)))
    return rows


def measure(
    model: Path,
    *,
    validation: Path,
    crossings: Path,
    scenes: int | None = None,
    workers: int = 1,
    change: Callable[[GuidanceTask], GuidanceTask] = lambda task: task,
) -> dict[str, Estimate]:
    """The measures of one model, by name; those without a case are left out.

    Args:
        model: folder of the model.
        validation: dataset for all tables but left turns.
        crossings: dataset for left turns.
        scenes: number of scenes of each table; None: all.
        workers: processes that plan.
        change: what is changed of every task.
    """
    network = load_model(model).model
    errors = reconstruction_errors(network, evenly_chosen(Dataset(validation), scenes), methods=TABLE_METHODS)
    rows = {
        f"{method}, {count + 1} tokens": Estimate.of(values[:, count], errors.episodes, errors.types)
        for method, values in errors.ade_m.items()
        for count in range(values.shape[1])
    }
    full = greedy(network.config.num_tokens)
    for name in ("goal", "left-turn", "lane-change", "slow-down"):
        folder = crossings if name == "left-turn" else validation
        cases = answer_dataset(
            change(TASKS[name]), model=str(model), folder=folder, scenes=scenes, workers=workers, only=(full,)
        )
        rows |= dict(_task_measures(name, cases, method=full))
    return rows


def _task_measures(task: str, cases: list[AnsweredCase], *, method: str) -> Iterator[tuple[str, Estimate]]:
    """Success (for goals: errors) by part of the task's table, and edge contact over all its cases."""
    wanted: Mapping[str, tuple[str, ...]] = {
        Group.GOAL: ("mean_error_m", "final_error_m"),
        left_turn_part(ALL_CROSSINGS, available=True): (SUCCESS,),
        left_turn_part(ALL_CROSSINGS, available=False): (SUCCESS,),
        Group.ZERO: (SUCCESS,),
        Group.ONE: (SUCCESS,),
        Group.STEADY: (SUCCESS,),
    }
    for part in TASKS[task].parts:
        chosen = [one for one in cases if part.has(one.case)]
        for measure_name in wanted.get(part.name, ()):
            if chosen:
                yield f"{part.name}: {measure_name}", _estimate(chosen, measure_name, method)
    if cases:
        yield f"{task}: {_EDGE}", _estimate(cases, _EDGE, method)


def _estimate(cases: list[AnsweredCase], name: str, method: str) -> Estimate:
    values = np.array([one.answer(method).measures[name] for one in cases], np.float64)
    return Estimate.of(values, np.array([one.episode for one in cases]))
