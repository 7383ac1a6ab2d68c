"""`waycode calibrate`: teach a model's gate which scenes it knows."""

from dataclasses import asdict, dataclass
from pathlib import Path

import tyro

from waycode.cli.console import Flag, check_at_least, progress_bar, say_result


@dataclass(frozen=True, kw_only=True)
class Calibrate:
    """Calibrate the gate of a model for scenes, and measure which scenes it notices as unknown.

    Writes familiarity.safetensors beside the weights. Run it again whenever the weights change.
    """

    known: tyro.conf.Positional[Path]
    """Dataset of scenes that the model was trained on."""
    held_out: tyro.conf.Positional[Path]
    """Dataset of the same kind that it was not trained on: 5 % of its scenes may be taken for unknown ones."""
    other: tuple[Path, ...] = ()
    """Datasets of other kinds, to measure how many of their scenes are noticed."""
    model: str = "sumo-small"
    """Name of a bundled model, or folder of a model or of a run."""
    scenes: int | None = 300
    """Number of scenes to draw from each dataset."""
    threads: int = 1
    """Number of threads; small models are fastest with one."""
    dry_run: Flag = False
    """Measure only, write nothing."""
    json: Flag = False
    """Print the result as JSON."""

    def run(self) -> int:
        from waycode.cli.planning import open_planner
        from waycode.cli.tables import detections_table
        from waycode.dataset.dataset import Dataset
        from waycode.evaluation.familiarity import calibrate
        from waycode.planner.familiarity import find_model

        check_at_least(2, scenes=self.scenes)
        planner = open_planner(self.model, threads=self.threads)
        known, held_out, *others = (Dataset(folder) for folder in (self.known, self.held_out, *self.other))
        with progress_bar("measuring", None) as advance:
            familiarity, detections = calibrate(
                planner, known, held_out, others, scenes=self.scenes, on_scene=lambda: advance(1)
            )
        path = None if self.dry_run else familiarity.save(find_model(self.model))
        limits = {"max_distance": float(familiarity.max_distance), "max_off_lane": float(familiarity.max_off_lane)}
        content = {"model": self.model, **limits, "detections": [asdict(one) for one in detections]}
        say_result(
            {**content, "file": path and str(path)},
            detections_table(detections, **limits),
            "nothing written" if path is None else f"{path}: written",
            as_json=self.json,
        )
        return 0
