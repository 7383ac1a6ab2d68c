"""Reconstruction errors: how well 1 to N tokens, from the encoder or from search, reproduce recorded trajectories.

Axes: R agents of all scenes, C codes (one per agent, in a joint model one per scene), T steps, N tokens, D dimensions.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from waycode.dataset.dataset import Dataset
from waycode.dataset.seeds import episode_of
from waycode.evaluation.metrics import OFFICIAL_SAMPLING_S, displacement_errors_m, final_errors_m, mean_over_types
from waycode.evaluation.report import EvaluationError, evenly_chosen
from waycode.features import Example, collate, extract
from waycode.model import MeanAndStd, Model, PrefixDecoder, SceneEmbedding, Spread, VarianceGate, search_codes
from waycode.model.autoencoder import average_displacement_m
from waycode.planner import recorded_agents
from waycode.scene import Scene
from waycode.search import refine

_BATCH_SCENES = 16  # bounds the memory; larger batches are not faster on a CPU
# The variance gate accepts this share of the reconstructions. What is asked of a planner is rarer than what is
# recorded, and the model is less certain of it: docs/planning.md has what other shares reject.
_GATE_QUANTILE = {Spread.BOTH: 0.99, Spread.LEAST: 0.98}


@dataclass(frozen=True, kw_only=True)
class CodeMethod:
    """Where the code of a trajectory comes from: a column of the paper's table 1, or the encoder's code refined."""

    by_search: bool  # True: search for the least error; False: the encoder
    num_levels: int | None  # levels per latent dimension; None: continuous
    beam_width: int = 1  # of the search; 1 is greedy
    refine_steps: int = 0  # gradient steps on the encoder's continuous code; the decoder does not change

    def __post_init__(self) -> None:
        if self.by_search and self.num_levels is None:
            raise ValueError("num_levels is None, but search needs a number of levels: it enumerates codes")
        if self.refine_steps and (self.by_search or self.num_levels is not None):
            raise ValueError(f"refine_steps is {self.refine_steps}, expected 0 but for the encoder's continuous code")

    @property
    def name(self) -> str:
        if self.refine_steps:
            return f"encoder refined {self.refine_steps}"
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
REFINED_METHODS = tuple(
    CodeMethod(by_search=False, num_levels=None, refine_steps=steps)
    for steps in (5, 40)  # the paper's
)
BEAM_METHODS = tuple(CodeMethod(by_search=True, num_levels=2, beam_width=width) for width in (1, 2, 4, 8))


@dataclass(frozen=True, kw_only=True)
class AgentErrors:
    """Errors of every agent by name of the method; column n - 1 is for n tokens."""

    types: Int[np.ndarray, " R"]  # values of `TrackType`
    scenes: Int[np.ndarray, " R"]  # number of the agent's scene
    episodes: Shaped[np.ndarray, " R"]  # name of the agent's episode
    ade_m: dict[str, Float[np.ndarray, "R N"]]  # over every step
    ade_2hz_m: dict[str, Float[np.ndarray, "R N"]]  # over the steps that WOMD's official metrics sample
    fde_m: dict[str, Float[np.ndarray, "R N"]]
    final_std_m: dict[str, Float[np.ndarray, "R N 2"]]  # predicted standard deviation at the last step


@dataclass(frozen=True, kw_only=True)
class _SceneItem:
    """A scene of a batch."""

    number: int
    episode: str
    example: Example
    types: Int[np.ndarray, " A"]  # of the agents to reconstruct


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
            _SceneItem(
                number=number,
                episode=episode_of(scene),
                example=extract(scene, agents, config=model.config.features),
                types=scene.tracks.types[agents].astype(np.int64),
            )
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
        episodes=np.concatenate([part.episodes for part in parts]),
        ade_m=join("ade_m"),
        ade_2hz_m=join("ade_2hz_m"),
        fde_m=join("fde_m"),
        final_std_m=join("final_std_m"),
    )


@torch.no_grad()
def _batch_errors(model: Model, items: list[_SceneItem], methods: tuple[CodeMethod, ...]) -> AgentErrors:
    """Errors of one batch."""
    batch = collate([item.example for item in items]).to(next(model.parameters()).device)
    future, valid = batch.future_m[batch.agents.mask], batch.future_valid[batch.agents.mask]
    embedding = model.encode_scene(batch.scene, batch.agents)
    latents = model.encode(future, valid, embedding)
    dt_s, ade, official, fde, std = model.config.features.dt_s, {}, {}, {}, {}
    for method in methods:
        mean_m, std_m = _reconstruct(model, method, embedding, latents, future, valid)
        paths, name = mean_m.unbind(dim=1), method.name
        ade[name] = _stack([displacement_errors_m(path, future, valid, dt_s=dt_s) for path in paths])
        official[name] = _stack(
            [displacement_errors_m(path, future, valid, dt_s=dt_s, every_s=OFFICIAL_SAMPLING_S) for path in paths]
        )
        fde[name] = _stack([final_errors_m(path, future, valid) for path in paths])
        std[name] = std_m[:, :, -1].cpu().numpy()
    counts = [len(item.types) for item in items]
    return AgentErrors(
        types=np.concatenate([item.types for item in items]),
        scenes=np.repeat([item.number for item in items], counts),
        episodes=np.repeat([item.episode for item in items], counts),
        ade_m=ade,
        ade_2hz_m=official,
        fde_m=fde,
        final_std_m=std,
    )


def _reconstruct(
    model: Model,
    method: CodeMethod,
    embedding: SceneEmbedding,
    latents: Float[Tensor, "C N D"],
    future_m: Float[Tensor, "R T 2"],
    valid: Bool[Tensor, "R T"],
) -> MeanAndStd:
    """Trajectories from 1 to N tokens, as N candidates per agent; `latents` is the encoder's continuous code."""
    levels, decode = method.num_levels, PrefixDecoder(model, embedding)
    if method.refine_steps:
        parts = []
        for count in range(1, latents.shape[1] + 1):  # each on its own: the best first token depends on those after it
            start = latents[:, :count]
            code = refined_reconstruction(decode, start, future_m, valid, steps=method.refine_steps)
            parts.append(model.decode(code[:, None], embedding))
        return torch.cat([mean for mean, _ in parts], dim=1), torch.cat([std for _, std in parts], dim=1)
    if method.by_search and levels is not None:
        ids = search_codes(model, embedding, future_m, valid, levels=levels, beam_width=method.beam_width)
        codes = model.codebook(levels).codes(ids)
    else:
        codes = latents if levels is None else model.encode(future_m, valid, embedding, levels=levels)
    return model.decoder.decode_all_prefixes(codes, embedding)


def refined_reconstruction(
    decode: PrefixDecoder,
    latents: Float[Tensor, "C n D"],
    future_m: Float[Tensor, "R T 2"],
    valid: Bool[Tensor, "R T"],
    *,
    steps: int,
) -> Float[Tensor, "C n D"]:
    """Continuous codes after gradient steps that minimise the mean distance from recorded trajectories.

    How much is gained shows how far the encoder is from the best code: its amortisation gap.

    Args:
        decode: decodes codes in the agents' scenes.
        latents: the start: the encoder's codes.
        future_m: recorded positions in agent frames.
        valid: which of them were observed.
        steps: number of gradient steps.
    """
    return refine(
        decode.decode,
        lambda decoded: decode.scene.tokens.of_codes(average_displacement_m(decoded[0], future_m, valid))[:, 0],
        latents,
        steps=steps,
    ).latents


def _stack(values: list[Tensor]) -> np.ndarray:
    return torch.stack(values, dim=1).cpu().numpy()


@dataclass(frozen=True, kw_only=True)
class ReconstructionFigures:
    """Validation of a training run on a fixed part of the scenes; a callable as `training.run.train` expects it."""

    num_scenes: int = 100  # evenly spread over the dataset, the same at every validation
    spread: Spread = Spread.LEAST  # of the gate

    def __call__(self, model: Model, dataset: Dataset) -> tuple[dict[str, float], VarianceGate]:
        """Returns the ADE in metres by "method/tokens", and the variance gate."""
        errors = reconstruction_errors(model, evenly_chosen(dataset, self.num_scenes), methods=_VALIDATION_METHODS)
        figures = {
            f"{name}/{tokens + 1}": mean_over_types(values[:, tokens], errors.types)
            for name, values in errors.ade_m.items()
            for tokens in range(values.shape[1])
        }
        return figures, calibrated_gate(errors, self.spread)

    def check(self, dataset: Dataset) -> None:
        """Raises `EvaluationError` for a dataset without tracks to predict, before training begins."""
        if not any(recorded_agents(scene) for scene in evenly_chosen(dataset, self.num_scenes)):
            raise EvaluationError(
                f"no scene of {dataset.folder} has a track to predict that is observed at the current step and after "
                "it: expected validation scenes with some"
            )


def calibrated_gate(errors: AgentErrors, spread: Spread, *, method: str = "greedy N_l = 2") -> VarianceGate:
    """The variance gate whose thresholds are a quantile of the final spread, by number of tokens.

    Args:
        errors: errors on validation scenes.
        spread: what the gate compares.
        method: name of the method whose standard deviations are used.
    """
    by_length = spread.of(torch.from_numpy(errors.final_std_m[method])).numpy().T  # [N, R]
    limits = {
        count: float(np.quantile(spread_m, _GATE_QUANTILE[spread])) for count, spread_m in enumerate(by_length, start=1)
    }
    return VarianceGate(sigma_max_m=limits, spread=spread)
