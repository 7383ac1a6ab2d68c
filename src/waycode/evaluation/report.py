"""Common parts of all reports: estimates with intervals, JSON files, and the choice of scenes of a dataset."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from waycode.dataset.dataset import Dataset
from waycode.evaluation.metrics import bootstrap_interval, mean_over_types
from waycode.scene import Scene, WaycodeError


class EvaluationError(WaycodeError):
    """Scenes or a model that cannot be evaluated."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean with its 95 % bootstrap interval; whole scenes are resampled."""

    mean: float
    low: float
    high: float

    @staticmethod
    def of(
        values: Float[np.ndarray, " R"], scenes: Int[np.ndarray, " R"], types: Int[np.ndarray, " R"] | None = None
    ) -> "Estimate":
        """Estimates the mean of the finite values; the result is NaN if there are none.

        Args:
            values: one value per case.
            scenes: number of the scene of each case; cases of one scene are resampled together.
            types: object type of each case. The mean is then that of the means per type, as WOMD averages.
        """
        types = np.zeros(len(values), np.int64) if types is None else types
        low, high = bootstrap_interval(values, types, scenes)
        return Estimate(mean=mean_over_types(values, types), low=low, high=high)


@dataclass(frozen=True, kw_only=True)
class Report(ABC):
    """Base of all reports: a dataclass of plain values that is written as JSON."""

    @property
    @abstractmethod
    def file_name(self) -> str:
        """Name of the report's JSON file."""

    def as_json(self) -> dict[str, Any]:
        """The report as dicts, lists, strings and numbers."""
        return asdict(self)

    def write(self, folder: Path) -> Path:
        """Writes the report into a folder, which is created if needed, and returns the file's path."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / self.file_name
        path.write_text(json.dumps(self.as_json(), indent=1) + "\n")
        return path


def chosen_indices(total: int, count: int | None) -> list[int]:
    """Indices of `count` scenes, evenly spread over `total`; all if `count` is None or not below `total`."""
    if count is None or count >= total:
        return list(range(total))
    return [int(index) for index in np.arange(count) * total // count]


def evenly_chosen(dataset: Dataset, count: int | None) -> Iterator[Scene]:
    """Reads the scenes of `chosen_indices`, one at a time."""
    return (dataset[index] for index in chosen_indices(len(dataset), count))
