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
    """

    what: tyro.conf.Positional[Literal["reconstruction"]]
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
    json: Flag = False
    """Print the report as JSON."""

    def run(self) -> int:
        for name in ("scenes", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"--{name} is {value}, expected at least 1")
        import torch

        from waycode.cli.learning_tables import reconstruction_tables
        from waycode.evaluation.judge import chosen_indices, evenly_chosen
        from waycode.evaluation.reconstruction_picture import save_reconstruction
        from waycode.evaluation.reconstruction_report import PICTURE_FILE, reconstruction_report
        from waycode.scene.dataset import Dataset
        from waycode.training.checks import check_fit
        from waycode.training.folders import open_model

        if self.threads is not None:
            torch.set_num_threads(self.threads)
        model, dataset = open_model(self.model).model, Dataset(self.data)
        check_fit(dataset, model.config.features)
        with progress("reconstructing", len(chosen_indices(len(dataset), self.scenes))) as advance:
            report = reconstruction_report(
                model, evenly_chosen(dataset, self.scenes), name=self.model, data=str(self.data), on_scenes=advance
            )
        if self.out is not None:
            report.write(self.out)
            save_reconstruction(report, self.out / PICTURE_FILE)
        if self.json:
            say_json(report.as_json())
        else:
            say(reconstruction_tables(report))
            if self.out is not None:
                say(f"{self.out}: reconstruction.json, {PICTURE_FILE}")
        return 0
