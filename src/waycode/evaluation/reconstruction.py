"""Reconstruction errors: how well 1 to N tokens, from the encoder or from search, reproduce recorded trajectories.

Axes: R agents of all scenes, T steps, N tokens, D latent dimensions.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from waycode.dataset.dataset import Dataset
from waycode.evaluation.metrics import displacement_errors_m, final_errors_m, mean_over_types
from waycode.evaluation.report import EvaluationError, evenly_chosen
from waycode.features import Example, collate, extract
from waycode.model import MeanAndStd, Model, PrefixDecoder
from waycode.model.bottleneck import quantise
from waycode.planner import recorded_agents
from waycode.scene import Scene
from waycode.search import beam_search

_BATCH_SCENES = 16  # bounds the memory; larger batches are not faster on a CPU
_GATE_QUANTILE = 0.95  # the variance gate accepts this share of the reconstructions


@dataclass(frozen=True, kw_only=True)
class CodeMethod:
    """Where the code of a trajectory comes from: a column of the paper's table 1."""

    by_search: bool  # True: search for the least error; False: the encoder
    num_levels: int | None  # levels per latent dimension; None: continuous
    beam_width: int = 1  # of the search; 1 is greedy

    def __post_init__(self) -> None:
        if self.by_search and self.num_levels is None:
            raise ValueError("num_levels is None, but search needs a number of levels: it enumerates codes")

    @property
    def name(self) -> str:
        levels = "continuous" if self.num_levels is None else f"N_l = {self.num_levels}"
        search = "greedy" if self.beam_width == 1 else f"beam {self.beam_width}"
        return f"{search if self.by_search else 'encoder'} {levels}"


TABLE_METHODS = (
    CodeMethod(by_search=False, num_levels=2),
    CodeMethod(by_search=False, num_levels=3),
    CodeMethod(by_search=False, num_levels=None),
    CodeMethod(by_search=True, num_levels=2),
    CodeMethod(by_search=True, num_levels=3),
)
_VALIDATION_METHODS = tuple(method for method in TABLE_METHODS if method.num_levels != 3)
BEAM_METHODS = tuple(CodeMethod(by_search=True, num_levels=2, beam_width=width) for width in (1, 2, 4, 8))


@dataclass(frozen=True, kw_only=True)
class AgentErrors:
    """Errors of every agent by name of the method; column n - 1 is for n tokens."""

    types: Int[np.ndarray, " R"]  # values of `TrackType`
    scenes: Int[np.ndarray, " R"]  # number of the agent's scene
    ade_m: dict[str, Float[np.ndarray, "R N"]]
    fde_m: dict[str, Float[np.ndarray, "R N"]]
    final_std_m: dict[str, Float[np.ndarray, "R N"]]  # predicted standard deviation at the last step


def reconstruction_errors(
    model: Model,
    scenes: Iterable[Scene],
    *,
    methods: tuple[CodeMethod, ...] = TABLE_METHODS,
    on_scenes: Callable[[int], None] = lambda count: None,
) -> AgentErrors:
    """Reconstructs the tracks to predict of all scenes.

    Args:
        model: the autoencoder.
        scenes: scenes with recorded futures; scenes without tracks to predict are skipped.
        methods: how codes are obtained.
        on_scenes: called with the number of scenes done since the last call.
    """
    parts: list[AgentErrors] = []
    numbers = enumerate(scenes)
    while numbered := list(islice(numbers, _BATCH_SCENES)):
        items = [
            (number, extract(scene, agents, config=model.config.features), scene.tracks.types[agents].astype(np.int64))
            for number, scene in numbered
            if (agents := recorded_agents(scene))
        ]
        if items:
            parts.append(_batch_errors(model, items, methods))
        on_scenes(len(numbered))
    if not parts:
        raise EvaluationError("no scene has a track to predict that is observed at its current step")

    def join(name: str) -> dict[str, np.ndarray]:
        return {one.name: np.concatenate([getattr(part, name)[one.name] for part in parts]) for one in methods}

    return AgentErrors(
        types=np.concatenate([part.types for part in parts]),
        scenes=np.concatenate([part.scenes for part in parts]),
        ade_m=join("ade_m"),
        fde_m=join("fde_m"),
        final_std_m=join("final_std_m"),
    )


@torch.no_grad()
def _batch_errors(
    model: Model, items: list[tuple[int, Example, np.ndarray]], methods: tuple[CodeMethod, ...]
) -> AgentErrors:
    """Errors of one batch; the items are (number of the scene, its example, types of its agents)."""
    batch = collate([example for _, example, _ in items]).to(next(model.parameters()).device)
    future, valid = batch.future_m[batch.agents.mask], batch.future_valid[batch.agents.mask]
    embedding = model.encode_scene(batch.scene, batch.agents)
    latents = model.encode(future, valid, embedding)
    ade, fde, std = {}, {}, {}
    for method in methods:
        levels = method.num_levels
        if method.by_search and levels is not None:
            decode = PrefixDecoder(model, embedding)
            codes = searched_reconstruction(model, decode, future, valid, levels=levels, beam_width=method.beam_width)
        else:
            codes = latents if levels is None else quantise(latents, levels)
        mean_m, std_m = model.decoder.decode_all_prefixes(codes, embedding)  # 1 to N tokens as N candidates per agent
        paths, name, dt_s = mean_m.unbind(dim=1), method.name, model.config.features.dt_s
        ade[name] = _stack([displacement_errors_m(path, future, valid, dt_s=dt_s) for path in paths])
        fde[name] = _stack([final_errors_m(path, future, valid) for path in paths])
        std[name] = std_m[:, :, -1].norm(dim=-1).cpu().numpy()
    return AgentErrors(
        types=np.concatenate([types for _, _, types in items]),
        scenes=np.concatenate([np.full(len(types), number) for number, _, types in items]),
        ade_m=ade,
        fde_m=fde,
        final_std_m=std,
    )


def searched_reconstruction(
    model: Model,
    decode: PrefixDecoder,
    future_m: Float[Tensor, "R T 2"],
    valid: Bool[Tensor, "R T"],
    *,
    levels: int,
    beam_width: int = 1,
) -> Float[Tensor, "R N D"]:
    """The codes that search finds when it minimises the mean distance from recorded trajectories.

    Args:
        model: the autoencoder.
        decode: decodes prefixes in the agents' scenes.
        future_m: recorded positions in agent frames.
        valid: which of them were observed.
        levels: levels per latent dimension.
        beam_width: 1 is greedy search.
    """

    def error(decoded: MeanAndStd) -> Tensor:
        distance = (decoded[0] - future_m[:, None]).norm(dim=-1) * valid[:, None]
        return distance.sum(dim=-1) / valid.sum(dim=-1).clamp(min=1)[:, None]

    codebook = model.codebook(levels)
    depth = model.config.num_tokens
    found = beam_search(
        decode, error, codebook=codebook, num_rows=len(future_m), depth=depth, beam_width=beam_width,
        device=future_m.device,
    )  # fmt: skip
    return codebook.codes(found.ids[:, 0])


def _stack(values: list[Tensor]) -> np.ndarray:
    return torch.stack(values, dim=1).cpu().numpy()


@dataclass(frozen=True, kw_only=True)
class ReconstructionFigures:
    """Validation of a training run on a fixed part of the scenes; a callable as `training.run.train` expects it."""

    num_scenes: int = 100  # evenly spread over the dataset, the same at every validation

    def __call__(self, model: Model, dataset: Dataset) -> tuple[dict[str, float], dict[int, float]]:
        """Returns the ADE in metres by "method/tokens", and the thresholds of the variance gate (`sigma_max_m`)."""
        errors = reconstruction_errors(model, evenly_chosen(dataset, self.num_scenes), methods=_VALIDATION_METHODS)
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
    """Thresholds of the variance gate by number of tokens: a quantile of the final standard deviation in metres.

    Args:
        errors: errors on validation scenes.
        method: name of the method whose standard deviations are used.
    """
    spread = errors.final_std_m[method]
    return {count + 1: float(np.quantile(spread[:, count], _GATE_QUANTILE)) for count in range(spread.shape[1])}
