"""`waycode eval joint-guidance`, `joint-consistency`, `joint-yielding`, `depth-sweep`, ...: joint models."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from waycode.cli.console import progress_bar

if TYPE_CHECKING:
    from waycode.dataset.dataset import Dataset
    from waycode.evaluation.report import Provenance
    from waycode.model import Model


JOINT_EVALUATIONS = ("joint-guidance", "joint-consistency", "joint-yielding", "depth-sweep", "search-vs-optimisation")


def evaluate_joint(
    name: str,
    model: "Model",
    dataset: "Dataset",
    provenance: "Provenance",
    *,
    scenes: int | None,
    agents: int,
    out: Path | None,
) -> tuple[Any, RenderableType, list[str]]:
    """Evaluates a joint model; returns the report as JSON, its table and the names of its files.

    Args:
        name: of the evaluation.
        model: with one code for all agents of a scene.
        dataset: of scenes that the model was not trained on.
        provenance: what the figures are measured with.
        scenes: number of scenes, evenly spread over the dataset; None: all.
        agents: modelled agents per scene, at most.
        out: folder for the files; None: nothing is written.
    """
    from waycode.cli.tables import joint_table
    from waycode.evaluation.joint_report import joint_report
    from waycode.evaluation.pictures import save_joint, save_yielding
    from waycode.evaluation.report import chosen_indices, evenly_chosen
    from waycode.evaluation.yielding import best_example
    from waycode.planner import Planner

    with progress_bar("searching", len(chosen_indices(len(dataset), scenes))) as advance:
        report = joint_report(
            name, model, evenly_chosen(dataset, scenes), provenance=provenance, agents_per_scene=agents,
            on_scenes=advance,
        )  # fmt: skip
    files = [report.file_name, report.file_name.replace(".json", ".png")]
    if out is not None:
        report.write(out)
        save_joint(report, out / files[1])
        if name == "joint-yielding" and (example := best_example(Planner(model), evenly_chosen(dataset, scenes))):
            files.append("joint-yielding-example.png")
            save_yielding(example, out / files[-1])
    return report.as_json(), joint_table(report), files
