"""`waycode eval`: how good a model is, as the tables and figures of the paper."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from waycode.cli.console import progress, say, say_json
from waycode.cli.data import Flag, UsageError


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Judge a model by the paper's tables and figures.

    reconstruction: how well 1, 2, ... tokens say what road users did (table 1: encoder at 2 and 3 levels and
    continuous, greedy search at 2 and 3 levels; with intervals, per type of road user), wider search, the orderings
    that must hold, and what the predicted spread is worth (table A5). Writes reconstruction.json and .png.

    left-turn, lane-change, slow-down: whether search finds what it is asked for, in scenes chosen as the paper chooses
    them, and how realistic that is, beside what road users did and beside a plan without an objective. Each writes a
    .json, a .png and a picture of examples under its name.

    closed-loop, closed-loop-ablation: how well planners drive (see `waycode simulate`): all of them beside each other,
    in replayed and in reacting traffic; or latent search with other depths, beams and objectives. Each writes a .json,
    a .parquet with a row per run, and a .png. Left out are scenes whose ego is no car or speeds in the log (they are
    counted). With --out, a run that was stopped goes on when it is run again.
    """

    what: tyro.conf.Positional[
        Literal["reconstruction", "left-turn", "lane-change", "slow-down", "closed-loop", "closed-loop-ablation"]
    ]
    """What is judged."""
    model: str
    """Folder of a model or of a run, or the name of a bundled model."""
    data: Path
    """Dataset of scenes that the model was not trained on."""
    scenes: int | None = None
    """Use this many scenes, evenly spread over the dataset; all if not given."""
    out: Path | None = None
    """Folder for the report and the picture; if none is given, nothing is written."""
    threads: int | None = None
    """Threads to compute with; all cores if not given."""
    workers: int = 1
    """Processes, but for reconstruction; if more than one, each computes with one thread."""
    json: Flag = False
    """Print the report as JSON."""

    def run(self) -> int:
        for name in ("scenes", "threads", "workers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"--{name} is {value}, expected at least 1")
        import torch

        if self.threads is not None:
            torch.set_num_threads(self.threads)
        if self.what == "reconstruction":
            return self._reconstruction()
        return self._closed_loop() if self.what.startswith("closed-loop") else self._guidance()

    def _reconstruction(self) -> int:
        from waycode.cli.learning_tables import reconstruction_tables
        from waycode.dataset.dataset import Dataset
        from waycode.evaluation.pictures import save_reconstruction
        from waycode.evaluation.reconstruction_report import reconstruction_report
        from waycode.evaluation.report import chosen_indices, evenly_chosen
        from waycode.training.checks import check_fit
        from waycode.training.folders import open_model

        model, dataset = open_model(self.model).model, Dataset(self.data)
        check_fit(dataset, model.config.features)
        with progress("reconstructing", len(chosen_indices(len(dataset), self.scenes))) as advance:
            report = reconstruction_report(
                model, evenly_chosen(dataset, self.scenes), name=self.model, data=str(self.data), on_scenes=advance
            )
        if self.out is not None:
            report.write(self.out)
            save_reconstruction(report, self.out / "reconstruction.png")
        if self.json:
            say_json(report.as_json())
        else:
            say(reconstruction_tables(report))
            if self.out is not None:
                say(f"{self.out}: reconstruction.json, reconstruction.png")
        return 0

    def _guidance(self) -> int:
        from waycode.cli.guidance_tables import guidance_tables
        from waycode.dataset.dataset import Dataset
        from waycode.evaluation.guidance import TASKS, answer_dataset
        from waycode.evaluation.guidance_report import guidance_report
        from waycode.evaluation.pictures import save_examples, save_guidance
        from waycode.evaluation.report import chosen_indices
        from waycode.training.checks import check_fit
        from waycode.training.folders import open_model

        config, dataset = open_model(self.model).model.config, Dataset(self.data)
        check_fit(dataset, config.features)
        num_scenes = len(chosen_indices(len(dataset), self.scenes))
        with progress("planning", num_scenes) as advance:
            answered = answer_dataset(
                self.what, model=self.model, folder=self.data, scenes=self.scenes, workers=self.workers,
                on_scenes=advance,
            )  # fmt: skip
        report = guidance_report(
            answered, task=TASKS[self.what], model=self.model, data=str(self.data), num_scenes=num_scenes,
            num_tokens=config.num_tokens,
        )  # fmt: skip
        if self.out is not None:
            report.write(self.out)
            save_guidance(report, self.out / f"{self.what}.png")
            save_examples(report, answered, self.out / f"{self.what}-examples.png", scene_of=dataset.__getitem__)
        if self.json:
            say_json(report.as_json())
        else:
            say(guidance_tables(report))
            if self.out is not None:
                say(f"{self.out}: {self.what}.json, {self.what}.png, {self.what}-examples.png")
        return 0

    def _closed_loop(self) -> int:
        from waycode.cli.closed_loop_tables import closed_loop_tables
        from waycode.dataset.dataset import Dataset
        from waycode.evaluation.closed_loop import (
            ABLATION_REFERENCE,
            COMPARISON_REFERENCE,
            ClosedLoopReport,
            ablation,
            comparison,
            drive_all,
            score_differences,
        )
        from waycode.evaluation.pictures import save_closed_loop
        from waycode.simulation.scenarios import choose_scenarios
        from waycode.training.checks import check_fit
        from waycode.training.folders import open_model

        dataset = Dataset(self.data)
        check_fit(dataset, open_model(self.model).model.config.features)
        chosen = choose_scenarios(dataset, self.scenes, only_fit=True)
        if not chosen.indices:
            raise UsageError(f"{self.data} has no scenes to drive (left out: {dict(chosen.left_out) or 'none'})")
        make, reference = (
            (ablation, ABLATION_REFERENCE)
            if self.what == "closed-loop-ablation"
            else (comparison, COMPARISON_REFERENCE)
        )
        campaigns = make(self.data, chosen.indices, model=self.model)
        scores = None if self.out is None else self.out / f"{self.what}.parquet"
        with progress("driving", len(campaigns) * len(chosen.indices), unit="runs") as advance:
            driven = drive_all(campaigns, scores=scores, workers=self.workers, on_scenarios=advance)
        report = ClosedLoopReport(
            name=self.what, data=str(self.data), model=self.model, left_out=dict(chosen.left_out),
            rows=[row for row, _ in driven], differences=score_differences(driven, reference=reference),
        )  # fmt: skip
        if self.out is not None:
            report.write(self.out)
            save_closed_loop(report, self.out / f"{self.what}.png")
        if self.json:
            say_json(report.as_json())
        else:
            say(
                closed_loop_tables(
                    f"{self.data}: closed loop", report.rows, left_out=report.left_out, differences=report.differences
                )
            )
            if self.out is not None:
                say(f"{self.out}: {self.what}.json, {self.what}.parquet, {self.what}.png")
        return 0
