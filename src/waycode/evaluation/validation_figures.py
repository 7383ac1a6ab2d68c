"""Figures for the validation of a training run: reconstruction on a fixed part of the validation scenes."""

from dataclasses import dataclass

import numpy as np

from waycode.dataset.dataset import Dataset
from waycode.evaluation.metrics import mean_over_types
from waycode.evaluation.reconstruction import AgentErrors, CodeMethod, reconstruction_errors
from waycode.evaluation.report import EvaluationError, evenly_chosen
from waycode.model import Model
from waycode.planner import recorded_agents

_METHODS = (
    CodeMethod(by_search=False, num_levels=2),
    CodeMethod(by_search=False, num_levels=None),
    CodeMethod(by_search=True, num_levels=2),
)
_GATE_QUANTILE = 0.95  # the gate accepts this share of the reconstructions


@dataclass(frozen=True, kw_only=True)
class ReconstructionFigures:
    """Computes the figures of one validation; a callable, as `training.run.train` expects it."""

    num_scenes: int = 100  # evenly spread over the dataset, the same at every validation

    def __call__(self, model: Model, dataset: Dataset) -> tuple[dict[str, float], dict[int, float]]:
        """Returns the ADE in metres by "method/tokens", and the thresholds of the variance gate (`sigma_max_m`)."""
        errors = reconstruction_errors(model, evenly_chosen(dataset, self.num_scenes), methods=_METHODS)
        figures = {
            f"{name}/{tokens + 1}": mean_over_types(values[:, tokens], errors.types)
            for name, values in errors.ade_m.items()
            for tokens in range(values.shape[1])
        }
        return figures, sigma_max_m(errors)

    def check(self, dataset: Dataset) -> None:
        """Raises `EvaluationError` for a dataset without tracks to predict, before training begins."""
        if not any(recorded_agents(scene) for scene in evenly_chosen(dataset, self.num_scenes)):
            raise EvaluationError(
                f"no scene of {dataset.folder} has a track to predict that is observed at the current step and after "
                "it: expected validation scenes with some"
            )


def sigma_max_m(errors: AgentErrors, *, method: str = "greedy N_l = 2") -> dict[int, float]:
    """Thresholds of the variance gate by number of tokens: a quantile of the final standard deviation in metres."""
    spread = errors.final_std_m[method]
    return {count + 1: float(np.quantile(spread[:, count], _GATE_QUANTILE)) for count in range(spread.shape[1])}
