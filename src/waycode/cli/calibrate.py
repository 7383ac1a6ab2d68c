"""`waycode calibrate`: the thresholds of a model's gate, for plans and for scenes."""

from dataclasses import asdict, dataclass
from typing import Literal

import tyro

from waycode.cli.console import (
    Count,
    DatasetPath,
    Flag,
    MaybeCount,
    ModelName,
    check_at_least,
    progress_bar,
    say_result,
)


@dataclass(frozen=True, kw_only=True)
class Calibrate:
    """Calibrate the gate of a model, for plans and for scenes, and measure which scenes it notices as unknown.

    Writes thresholds.json (the final standard deviation that nearly all reconstructions stay below, by number of
    tokens) and familiarity.safetensors beside the weights. Run it again whenever the weights change.
    """

    known: tyro.conf.Positional[DatasetPath]
    """Dataset of scenes that the model was trained on."""
    held_out: tyro.conf.Positional[DatasetPath]
    """Dataset of the same kind that it was not trained on: 5 % of its scenes may be taken for unknown ones."""
    other: tuple[DatasetPath, ...] = ()
    """Datasets of other kinds, to measure how many of their scenes are noticed."""
    model: ModelName = "sumo-small"
    """Name of a bundled model (`waycode models` lists them), or folder of a model or of a run."""
    scenes: MaybeCount = 300
    """Number of scenes to draw from each dataset."""
    threads: Count = 1
    """Number of threads; small models are fastest with one."""
    spread: Literal["least", "both"] = "least"
    """What the gate compares at the last step: the smaller standard deviation, or the magnitude (the paper's)."""
    dry_run: Flag = False
    """Measure only, write nothing."""
    json: Flag = False
    """Print the result as JSON."""

    def run(self) -> int:
        from waycode.cli.planning import open_planner
        from waycode.cli.tables import detections_table
        from waycode.dataset.dataset import Dataset
        from waycode.evaluation.familiarity import calibrate
        from waycode.evaluation.reconstruction import ReconstructionFigures
        from waycode.model import Spread
        from waycode.model.saved import find_model, save_thresholds

        check_at_least(2, scenes=self.scenes)
        planner = open_planner(self.model, threads=self.threads)
        known, held_out, *others = (Dataset(folder) for folder in (self.known, self.held_out, *self.other))
        with progress_bar("measuring", None) as advance:
            familiarity, detections = calibrate(
                planner, known, held_out, others, scenes=self.scenes, on_scene=lambda: advance(1)
            )
        _, gate = ReconstructionFigures(spread=Spread(self.spread))(planner.model, held_out)
        path = None
        if not self.dry_run:
            path = familiarity.save(find_model(self.model))
            save_thresholds(find_model(self.model), gate)
        limits = {"max_distance": float(familiarity.max_distance), "max_off_lane": float(familiarity.max_off_lane)}
        content = {
            "model": self.model,
            "spread": str(gate.spread),
            "sigma_max_m": dict(gate.sigma_max_m),
            **limits,
            "detections": [asdict(one) for one in detections],
        }
        say_result(
            {**content, "file": path and str(path)},
            detections_table(detections, **limits),
            f"final standard deviation in m ({gate.spread}) that is trusted: "
            + ", ".join(f"{value:.2f} with {count} tokens" for count, value in gate.sigma_max_m.items()),
            "nothing written" if path is None else f"{path.parent}: thresholds.json, {path.name}",
            as_json=self.json,
        )
        return 0
