"""Common parts of all reports: estimates with intervals, provenance, JSON files, and the choice of scenes."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped

from waycode.dataset.dataset import Dataset
from waycode.dataset.files import replace_file
from waycode.dataset.seeds import SEED_RULE, SeedRole, seed_of, seed_role
from waycode.evaluation.metrics import BOOTSTRAP_SEED, bootstrap_means, mean_over_types
from waycode.scene import Scene, WaycodeError


class EvaluationError(WaycodeError):
    """Scenes or a model that cannot be evaluated."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean, or a ratio of means, with its 95 % bootstrap interval; whole episodes are resampled."""

    mean: float
    low: float
    high: float

    @staticmethod
    def of(
        values: Float[np.ndarray, " R"], episodes: Shaped[np.ndarray, " R"], types: Int[np.ndarray, " R"] | None = None
    ) -> "Estimate":
        """Estimates the mean of the finite values; the result is NaN if there are none.

        Args:
            values: one value per case.
            episodes: name or number of each case's episode (`waycode.dataset.seeds.episode_of`); cases of one episode
                are resampled together.
            types: object type of each case. The mean is then that of the means per type, as WOMD averages.
        """
        return _estimate(values[:, None], episodes, types, lambda means: means[:, 0])

    @staticmethod
    def of_difference(
        first: Float[np.ndarray, " R"],
        second: Float[np.ndarray, " R"],
        episodes: Shaped[np.ndarray, " R"],
        types: Int[np.ndarray, " R"] | None = None,
    ) -> "Estimate":
        """Estimates the mean of `first` less that of `second`: paired, over the cases in which both are finite.

        What is hard for both does not widen the interval. Other arguments as for `of`.
        """
        return Estimate.of(first - second, episodes, types)

    @staticmethod
    def of_ratio(
        first: Float[np.ndarray, " R"],
        second: Float[np.ndarray, " R"],
        episodes: Shaped[np.ndarray, " R"],
        types: Int[np.ndarray, " R"] | None = None,
    ) -> "Estimate":
        """Estimates the mean of `first` divided by that of `second`; paired, as `of_difference`. NaN if that is 0."""

        def ratio(means: np.ndarray) -> np.ndarray:
            unknown = np.full(len(means), np.nan)
            return np.divide(means[:, 0], means[:, 1], out=unknown, where=means[:, 1] != 0)

        return _estimate(np.stack([first, second], axis=1), episodes, types, ratio)


def _estimate(
    values: Float[np.ndarray, "R C"],
    episodes: Shaped[np.ndarray, " R"],
    types: Int[np.ndarray, " R"] | None,
    combine: Callable[[np.ndarray], np.ndarray],
) -> Estimate:
    """Estimates `combine` of the means of C columns; it gets the means [n, C] of n resamples and returns n numbers."""
    known = np.isfinite(values).all(axis=1)
    if not known.any():
        return Estimate(mean=float("nan"), low=float("nan"), high=float("nan"))
    values, episodes = values[known], episodes[known]
    types = np.zeros(len(values), np.int64) if types is None else types[known]
    mean = np.array([[mean_over_types(column, types) for column in values.T]])
    low, high = np.quantile(combine(bootstrap_means(values, types, episodes)), [0.025, 0.975])
    return Estimate(mean=float(combine(mean)[0]), low=float(low), high=float(high))


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """What the figures of a report were measured with."""

    model: str  # as `--model` takes it
    data: str  # folder of the dataset
    settings_sha256: str  # of the dataset, as in its `dataset.json`
    data_seed: int | None  # of the generated dataset; None: of another source
    seed_role: SeedRole | None  # what that seed may be used for
    published: bool  # whether the figures are to be published, which test seeds are reserved for
    seed: int = BOOTSTRAP_SEED  # of the bootstrap: nothing else in an evaluation is random

    @staticmethod
    def of(dataset: Dataset, *, model: str, publish: bool = False) -> "Provenance":
        """The provenance of a report on a dataset. Raises `EvaluationError` for test seeds without `publish`.

        Args:
            dataset: the scenes.
            model: what `--model` takes.
            publish: whether the figures are to be published.
        """
        info, role = dataset.info, seed_role(dataset.info)
        if role is SeedRole.TEST and not publish:
            raise EvaluationError(
                f"{dataset.folder} was generated with seed {seed_of(info)}, a test seed: expected a dataset of a "
                f"development seed, or --publish for final figures (seeds: {SEED_RULE})"
            )
        return Provenance(
            model=model,
            data=str(dataset.folder),
            settings_sha256=info.settings_sha256,
            data_seed=seed_of(info),
            seed_role=role,
            published=publish,
        )


@dataclass(frozen=True, kw_only=True)
class Report(ABC):
    """Base of all reports: a dataclass of plain values that is written as JSON."""

    provenance: Provenance

    @property
    @abstractmethod
    def file_name(self) -> str:
        """Name of the report's JSON file."""

    def as_json(self) -> dict[str, Any]:
        """The report as dicts, lists, strings and numbers; the fields of `provenance` first, on the same level."""
        content = asdict(self)
        return {**content.pop("provenance"), **content}

    def write(self, folder: Path) -> Path:
        """Writes the report into a folder, which is created if needed, and returns the file's path."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / self.file_name
        text = json.dumps(self.as_json(), indent=1) + "\n"
        replace_file(path, lambda temporary: temporary.write_text(text))
        return path


def chosen_indices(total: int, count: int | None) -> list[int]:
    """Indices of `count` scenes, evenly spread over `total`; all if `count` is None or not below `total`."""
    if count is None or count >= total:
        return list(range(total))
    return [int(index) for index in np.arange(count) * total // count]


def evenly_chosen(dataset: Dataset, count: int | None) -> Iterator[Scene]:
    """Reads the scenes of `chosen_indices`, one at a time."""
    return (dataset[index] for index in chosen_indices(len(dataset), count))
