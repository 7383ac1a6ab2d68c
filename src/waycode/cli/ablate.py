"""`waycode ablate`: trains a model without each addition of ours and compares them."""

import os
from dataclasses import dataclass

import tyro

from waycode.cli.console import (
    STOPPED,
    Count,
    DatasetPath,
    Flag,
    Folder,
    MaybeCount,
    MaybeFolder,
    UsageError,
    check_at_least,
    complain,
    say,
    say_result,
)


@dataclass(frozen=True, kw_only=True)
class Ablate:
    """Train the recipe `small` without each addition of ours, at equal budget, and measure all variants alike.

    Run a stopped command again to continue it. Writes ablation.json, and a run per variant.
    """

    data: tyro.conf.Positional[DatasetPath]
    """Dataset to train on."""
    val: DatasetPath
    """Dataset of a development seed, for all tables but left turns."""
    crossings: DatasetPath
    """Dataset of a development seed with crossings, for left turns."""
    out: Folder
    """Folder of the runs and of the report."""
    steps: Count = 1500
    """Steps of training of every variant."""
    only: tuple[str, ...] = ()
    """Names of the variants; all if not given."""
    scenes: MaybeCount = None
    """Number of scenes of every table; all if not given."""
    threads: MaybeCount = None
    """Number of threads of training; all cores if not given."""
    workers: Count = 1
    """Number of processes that plan."""
    cache: MaybeFolder = None
    """Folder of prepared examples, as for `waycode train`."""
    json: Flag = False
    """Print the report as JSON."""

    def run(self) -> int:
        check_at_least(1, steps=self.steps, scenes=self.scenes, threads=self.threads, workers=self.workers)
        import torch

        from waycode.cli.tables import ablation_table
        from waycode.evaluation.ablation import VARIANTS, ablation_report
        from waycode.training.callbacks import RunStopped

        unknown = [name for name in self.only if name not in VARIANTS]
        if unknown:
            raise UsageError(f"there is no variant {unknown[0]!r}; available: {', '.join(VARIANTS)}")
        torch.set_num_threads(self.threads or os.cpu_count() or 1)
        try:
            report = ablation_report(
                self.out, data=self.data, validation=self.val, crossings=self.crossings, steps=self.steps,
                variants=self.only or VARIANTS, scenes=self.scenes, workers=self.workers, cache=self.cache,
                on_variant=lambda name: None if self.json else say(name),
            )  # fmt: skip
        except (RunStopped, KeyboardInterrupt):
            return complain("stopped: the same command goes on from the last checkpoint", STOPPED)
        path = report.write(self.out)
        say_result(report.as_json(), ablation_table(report), str(path), as_json=self.json)
        return 0
