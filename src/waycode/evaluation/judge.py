"""The judge of a training run: reconstruction at N_l = 2 on a fixed part of the validation scenes."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from waycode.dataset.dataset import Dataset
from waycode.evaluation.calibration import sigma_max_m
from waycode.evaluation.metrics import mean_over_types
from waycode.evaluation.reconstruction import Column, EvaluationError, reconstruction_errors
from waycode.model import Model
from waycode.planner import recorded_agents
from waycode.scene import Scene

JUDGED_COLUMNS = (
    Column(by_search=False, num_levels=2),
    Column(by_search=False, num_levels=None),
    Column(by_search=True, num_levels=2),
)


@dataclass(frozen=True, kw_only=True)
class ReconstructionJudge:
    """Called with a model and a dataset: gives figures named `column/tokens`, and the variance gate's thresholds."""

    num_scenes: int = 100

    def __call__(self, model: Model, dataset: Dataset) -> tuple[dict[str, float], dict[int, float]]:
        errors = reconstruction_errors(model, evenly_chosen(dataset, self.num_scenes), columns=JUDGED_COLUMNS)
        figures = {
            f"{name}/{tokens + 1}": mean_over_types(values[:, tokens], errors.types)
            for name, values in errors.ade_m.items()
            for tokens in range(values.shape[1])
        }
        return figures, sigma_max_m(errors)

    def check(self, dataset: Dataset) -> None:
        """Refuses, before training begins, scenes by which nothing can be judged."""
        if not any(recorded_agents(scene) for scene in evenly_chosen(dataset, self.num_scenes)):
            raise EvaluationError(
                f"no scene of {dataset.folder} has a track to predict that is seen now and afterwards: "
                "expected validation scenes with some"
            )


def chosen_indices(total: int, count: int | None) -> list[int]:
    """Indices of `count` scenes, evenly spread over all; all of them if none is asked for or there are no more."""
    if count is None or count >= total:
        return list(range(total))
    return [int(index) for index in np.arange(count) * total // count]


def evenly_chosen(dataset: Dataset, count: int | None) -> Iterator[Scene]:
    """Always the same scenes, one at a time."""
    return (dataset[index] for index in chosen_indices(len(dataset), count))
