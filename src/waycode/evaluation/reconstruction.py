"""Table 1 of the paper: how well trajectories are reconstructed from 1 to N tokens, by the encoder and by search."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from waycode.evaluation.metrics import bootstrap_interval, displacement_errors_m, final_errors_m, mean_over_types
from waycode.features import Batch, Example, collate, extract
from waycode.model import MeanAndStd, Model, PrefixDecoder
from waycode.model.bottleneck import quantise
from waycode.planner import recorded_agents
from waycode.scene import Scene, WaycodeError
from waycode.search import beam_search

SCENES_PER_BATCH = 16


class EvaluationError(WaycodeError):
    """Scenes or a model that cannot be judged."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """One way to a code: the encoder or a search, at a number of levels (None: continuous)."""

    by_search: bool
    num_levels: int | None
    beam_width: int = 1  # of the search; 1 is greedy

    def __post_init__(self) -> None:
        if self.by_search and self.num_levels is None:
            raise ValueError("search needs a number of levels: it enumerates codes")

    @property
    def name(self) -> str:
        levels = "continuous" if self.num_levels is None else f"N_l = {self.num_levels}"
        search = "greedy" if self.beam_width == 1 else f"beam {self.beam_width}"
        return f"{search if self.by_search else 'encoder'} {levels}"


COLUMNS = (
    Column(by_search=False, num_levels=2),
    Column(by_search=False, num_levels=3),
    Column(by_search=False, num_levels=None),
    Column(by_search=True, num_levels=2),
    Column(by_search=True, num_levels=3),
)
BEAM_WIDTHS = (1, 2, 4, 8)
BEAM_COLUMNS = tuple(Column(by_search=True, num_levels=2, beam_width=width) for width in BEAM_WIDTHS)


@dataclass(frozen=True, kw_only=True)
class AgentErrors:
    """Errors of every agent for every column and number of tokens, and the predicted spread."""

    types: Int[np.ndarray, " R"]
    scenes: Int[np.ndarray, " R"]
    ade_m: dict[str, Float[np.ndarray, "R N"]]
    fde_m: dict[str, Float[np.ndarray, "R N"]]
    final_std_m: dict[str, Float[np.ndarray, "R N"]]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A number of the table with its confidence interval."""

    ade_m: float
    low_m: float
    high_m: float


def reconstruction_errors(
    model: Model,
    scenes: Iterable[Scene],
    *,
    columns: tuple[Column, ...] = COLUMNS,
    on_scenes: Callable[[int], None] = lambda count: None,
) -> AgentErrors:
    """Reconstructs the tracks to predict of all scenes in every way."""
    parts: list[AgentErrors] = []
    numbers = enumerate(scenes)
    while numbered := list(islice(numbers, SCENES_PER_BATCH)):
        items = [
            (number, extract(scene, agents, config=model.config.features), scene.tracks.types[agents].astype(np.int64))
            for number, scene in numbered
            if (agents := recorded_agents(scene))
        ]
        if items:
            parts.append(_batch_errors(model, items, columns))
        on_scenes(len(numbered))
    if not parts:
        raise EvaluationError("no scene has a track to predict that is observed at its current step")
    return _joined(parts)


def reconstruction_table(errors: AgentErrors) -> dict[str, list[Cell]]:
    """ADE averaged over object types and horizons, per column: a cell for 1, 2, ..., N tokens."""
    table = {}
    for name, values in errors.ade_m.items():
        cells = []
        for tokens in range(values.shape[1]):
            low, high = bootstrap_interval(values[:, tokens], errors.types, errors.scenes)
            cells.append(Cell(ade_m=mean_over_types(values[:, tokens], errors.types), low_m=low, high_m=high))
        table[name] = cells
    return table


@torch.no_grad()
def _batch_errors(
    model: Model, items: list[tuple[int, Example, np.ndarray]], columns: tuple[Column, ...]
) -> AgentErrors:
    batch = collate([example for _, example, _ in items])
    future, valid = batch.future_m[batch.agents.mask], batch.future_valid[batch.agents.mask]
    ade, fde, std = {}, {}, {}
    dt_s = model.config.features.dt_s
    for column, (mean_m, std_m) in _decode_columns(model, batch, columns):
        steps = range(mean_m.shape[1])
        paths = [mean_m[:, count] for count in steps]
        ade[column.name] = _stack([displacement_errors_m(path, future, valid, dt_s=dt_s) for path in paths])
        fde[column.name] = _stack([final_errors_m(path, future, valid) for path in paths])
        std[column.name] = _stack([std_m[:, count, -1].norm(dim=-1) for count in steps])
    return AgentErrors(
        types=np.concatenate([types for _, _, types in items]),
        scenes=np.concatenate([np.full(len(types), number) for number, _, types in items]),
        ade_m=ade,
        fde_m=fde,
        final_std_m=std,
    )


def _decode_columns(model: Model, batch: Batch, columns: tuple[Column, ...]) -> Iterator[tuple[Column, MeanAndStd]]:
    """Every column's trajectories of 1 to N tokens, as N candidates per agent."""
    scene = model.encode_scene(batch.scene, batch.agents)
    future, valid = batch.future_m[batch.agents.mask], batch.future_valid[batch.agents.mask]
    latents = model.encode(future, valid, scene.tokens)
    for column in columns:
        if column.by_search and column.num_levels is not None:
            codes = searched_reconstruction(
                model,
                PrefixDecoder(model, scene),
                future,
                valid,
                levels=column.num_levels,
                beam_width=column.beam_width,
            )
        else:
            codes = latents if column.num_levels is None else quantise(latents, column.num_levels)
        yield column, model.decoder.decode_all_prefixes(codes, scene)


def searched_reconstruction(
    model: Model,
    decode: PrefixDecoder,
    future_m: Float[Tensor, "R T 2"],
    valid: Tensor,
    *,
    levels: int,
    beam_width: int = 1,
) -> Float[Tensor, "R N D"]:
    """The code that search finds when it minimises the ADE to the true trajectory."""

    def error(decoded: MeanAndStd) -> Tensor:
        mean_m, _ = decoded
        distance = (mean_m - future_m[:, None]).norm(dim=-1) * valid[:, None]
        return distance.sum(dim=-1) / valid.sum(dim=-1).clamp(min=1)[:, None]

    codebook = model.codebook(levels)
    depth = model.config.num_tokens
    found = beam_search(decode, error, codebook=codebook, num_rows=len(future_m), depth=depth, beam_width=beam_width)
    return codebook.codes(found.ids[:, 0])


def _stack(values: list[Tensor]) -> np.ndarray:
    return torch.stack(values, dim=1).numpy()


def _joined(parts: list[AgentErrors]) -> AgentErrors:
    def join(name: str) -> dict[str, np.ndarray]:
        columns = getattr(parts[0], name)
        return {column: np.concatenate([getattr(part, name)[column] for part in parts]) for column in columns}

    return AgentErrors(
        types=np.concatenate([part.types for part in parts]),
        scenes=np.concatenate([part.scenes for part in parts]),
        ade_m=join("ade_m"),
        fde_m=join("fde_m"),
        final_std_m=join("final_std_m"),
    )
