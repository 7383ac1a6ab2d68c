"""`waycode ablate`: trains a model without each addition of ours and compares them."""

import os
from dataclasses import dataclass
from pathlib import Path

from waycode.cli.console import STOPPED, Flag, UsageError, check_at_least, complain, say, say_result


@dataclass(frozen=True, kw_only=True)
class Ablate:
    """Train the recipe `small` without each addition of ours, at equal budget, and measure all variants alike.

    Run a stopped command again to continue it. Writes ablation.json, and a run per variant.
    """

    data: Path
    """Dataset to train on."""
    val: Path
    """Dataset of a development seed, for all tables but left turns."""
    crossings: Path
    """Dataset of a development seed with crossings, for left turns."""
    out: Path
    """Folder of the runs and of the report."""
    steps: int = 1500
    """Steps of training of every variant."""
    only: tuple[str, ...] = ()
    """Names of the variants; all if not given."""
    scenes: int | None = None
    """Number of scenes of every table; all if not given."""
    threads: int | None = None
    """Number of threads of training; all cores if not given."""
    workers: int = 1
    """Number of processes that plan."""
    cache: Path | None = None
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
