"""Answers the cases of a dataset, in one process or in several."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from waycode.dataset.dataset import Dataset
from waycode.dataset.workers import map_tasks
from waycode.evaluation.guidance import TASKS, AnsweredCase, answer_cases
from waycode.evaluation.judge import chosen_indices
from waycode.model.saved import load_model
from waycode.planner import Planner

SCENES_PER_PART = 25


@dataclass(frozen=True, kw_only=True)
class _Part:
    """Some scenes of a dataset, and what to do with them; all of it can be sent to another process."""

    task: str
    model: str
    folder: Path
    scenes: tuple[int, ...]
    threads: int | None  # None: as many as there are now


def answer_dataset(
    task: str,
    *,
    model: str,
    folder: Path,
    scenes: int | None = None,
    workers: int = 1,
    on_scenes: Callable[[int], None] = lambda count: None,
) -> list[AnsweredCase]:
    """The cases of this many scenes, evenly spread over the dataset, in the order of the scenes."""
    chosen = chosen_indices(len(Dataset(folder)), scenes)
    groups = [tuple(chosen[start : start + SCENES_PER_PART]) for start in range(0, len(chosen), SCENES_PER_PART)]
    threads = 1 if workers > 1 else None
    parts = [_Part(task=task, model=model, folder=folder, scenes=group, threads=threads) for group in groups]
    answered = []
    for part, found in zip(parts, map_tasks(_answer_part, parts, workers=workers), strict=True):
        answered += found
        on_scenes(len(part.scenes))
    return answered


def _answer_part(part: _Part) -> list[AnsweredCase]:
    if part.threads is not None:
        torch.set_num_threads(part.threads)
    saved, dataset = load_model(part.model), Dataset(part.folder)
    planner = Planner(saved.model, sigma_max_m=saved.sigma_max_m)
    return answer_cases(planner, ((index, dataset[index]) for index in part.scenes), task=TASKS[part.task])
