"""`waycode eval forecast`: runs the evaluation, writes its files and prints its table."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from waycode.cli.console import progress_bar

if TYPE_CHECKING:
    from waycode.dataset.dataset import Dataset
    from waycode.evaluation.report import Provenance
    from waycode.model import Model

FILES = ["forecast.json", "forecast.png"]


def evaluate_forecast(
    model: "Model", dataset: "Dataset", provenance: "Provenance", *, scenes: int | None, out: Path | None
) -> tuple[Any, RenderableType, list[str]]:
    """Evaluates a model; returns the report as JSON, its tables and the names of its files.

    Args:
        model: with a prior.
        dataset: of scenes that the model was not trained on.
        provenance: what the figures are measured with.
        scenes: number of scenes, evenly spread over the dataset; None: all.
        out: folder for the files; None: nothing is written.
    """
    from waycode.cli.tables import forecast_tables
    from waycode.evaluation.forecast_report import forecast_report
    from waycode.evaluation.pictures import save_forecast
    from waycode.evaluation.report import chosen_indices, evenly_chosen

    with progress_bar("forecasting", len(chosen_indices(len(dataset), scenes))) as advance:
        report = forecast_report(model, evenly_chosen(dataset, scenes), provenance=provenance, on_scenes=advance)
    if out is not None:
        report.write(out)
        save_forecast(report, out / FILES[1])
    return report.as_json(), forecast_tables(report), FILES
