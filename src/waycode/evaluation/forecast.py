"""Forecasts without an objective: what the model's prior considers likely, beside the recording and simple forecasts.

Axes: R agents of all scenes, K forecasts of an agent, T steps, N tokens, V values of a token.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from zlib import crc32

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from waycode.dataset.seeds import episode_of
from waycode.evaluation.guidance import DECODED, RECORDED
from waycode.evaluation.metrics import displacement_errors_m, final_errors_m
from waycode.evaluation.motion import MeasuredMotion
from waycode.evaluation.realism import body_corners_m
from waycode.evaluation.report import EvaluationError
from waycode.features import collate, extract
from waycode.model import Model, PrefixDecoder, SceneEmbedding, search_codes
from waycode.model.decoder import PRIOR_LEVELS
from waycode.planner import recorded_agents
from waycode.planner.prior import CodePrior, draw, most_likely
from waycode.scene import Scene, TrackType
from waycode.scene.conflicts import hits_recorded
from waycode.scene.frames import rotate
from waycode.search import beam_search

NUM_FORECASTS = 6  # of WOMD and Argoverse
_MISS_M = 2.0  # a forecast that ends farther away misses (Argoverse)
_BATCH_SCENES = 8  # bounds the memory: all codes of all agents are rated at once
CONSTANT_VELOCITY, LEAST_VARIANCE = "constant velocity", "least variance"
MOST_LIKELY, SAMPLED = "most likely", "sampled"
MIN_ADE, MIN_FDE, MISS = "min_ade_m", "min_fde_m", "miss"  # of the nearest of the K forecasts
MEAN_SPEED, COLLISION = "mean_speed_mps", "collision"  # of the first forecast

Measures = dict[str, dict[str, Float[np.ndarray, " R"]]]  # method -> measure -> value; NaN where not measured


@dataclass(frozen=True, kw_only=True)
class AgentForecasts:
    """Measures of every agent, and the prior of the tokens of its recorded code."""

    types: Int[np.ndarray, " R"]  # values of `TrackType`
    scenes: Int[np.ndarray, " R"]  # number of the agent's scene
    episodes: Shaped[np.ndarray, " R"]  # `episode_of` the scene
    measures: Measures
    tokens: Int[np.ndarray, "R N"]  # greedy search finds them for the recording
    probability: Float[np.ndarray, "R N V"]  # of each token, given those before it


@dataclass(frozen=True)
class _Item:
    """A scene of a batch."""

    number: int
    scene: Scene
    agents: list[int]


def agent_forecasts(
    model: Model, scenes: Iterable[Scene], *, on_scenes: Callable[[int], None] = lambda count: None
) -> AgentForecasts:
    """Forecasts the tracks to predict of all scenes.

    Args:
        model: with a prior.
        scenes: scenes with recorded futures; scenes without tracks to predict are skipped.
        on_scenes: called with the number of scenes done since the last call.
    """
    parts: list[AgentForecasts] = []
    numbers = enumerate(scenes)
    while numbered := list(islice(numbers, _BATCH_SCENES)):
        items = [_Item(number, scene, agents) for number, scene in numbered if (agents := recorded_agents(scene))]
        if items:
            parts.append(_batch_forecasts(model, items))
        on_scenes(len(numbered))
    if not parts:
        raise EvaluationError("no scene has a track to predict that is observed at its current step")
    measures = {
        method: {name: np.concatenate([part.measures[method][name] for part in parts]) for name in named}
        for method, named in parts[0].measures.items()
    }
    return AgentForecasts(
        types=np.concatenate([part.types for part in parts]),
        scenes=np.concatenate([part.scenes for part in parts]),
        episodes=np.concatenate([part.episodes for part in parts]),
        measures=measures,
        tokens=np.concatenate([part.tokens for part in parts]),
        probability=np.concatenate([part.probability for part in parts]),
    )


@torch.no_grad()
def _batch_forecasts(model: Model, items: Sequence[_Item]) -> AgentForecasts:
    features = model.config.features
    batch = collate([extract(item.scene, item.agents, config=features) for item in items])
    batch = batch.to(next(model.parameters()).device)
    embedding = model.encode_scene(batch.scene, batch.agents)
    future, valid = batch.future_m[batch.agents.mask], batch.future_valid[batch.agents.mask]
    prior = CodePrior(model=model, scene=embedding)
    ids = search_codes(model, embedding, future, valid, levels=PRIOR_LEVELS)
    recorded = prior.codebook.codes(ids)
    seeds = [crc32(f"{item.scene.id} {agent}".encode()) for item in items for agent in item.agents]
    forecasts = {RECORDED: future[:, None], **_forecasts(prior, recorded, seeds=seeds)}
    measures = _driving_measures(forecasts, items, valid.cpu().numpy())
    for method, paths in forecasts.items():
        if method != RECORDED:
            measures[method] = _errors(paths, future, valid, dt_s=features.dt_s) | measures[method]
    counts = [len(item.agents) for item in items]
    return AgentForecasts(
        types=np.concatenate([item.scene.tracks.types[item.agents] for item in items]).astype(np.int64),
        scenes=np.repeat([item.number for item in items], counts),
        episodes=np.repeat([episode_of(item.scene) for item in items], counts),
        measures=measures,
        tokens=ids.cpu().numpy(),
        probability=_token_probabilities(model, recorded, embedding),
    )


def _forecasts(
    prior: CodePrior, recorded: Float[Tensor, "R N D"], *, seeds: Sequence[int]
) -> dict[str, Float[Tensor, "R _ T 2"]]:
    """The forecasts of all methods in the agents' frames, best first; `recorded` are the codes of the recordings."""
    model, embedding = prior.model, prior.scene
    depth, decoder = model.config.num_tokens, model.decoder
    log_probability = prior.of_all_codes(depth)
    certain = beam_search(
        PrefixDecoder(model, embedding), lambda decoded: decoded[1][:, :, -1].norm(dim=-1), codebook=prior.codebook,
        num_rows=len(recorded), depth=depth, beam_width=NUM_FORECASTS, device=recorded.device,
    )  # fmt: skip
    codes = {
        DECODED: recorded[:, None],
        LEAST_VARIANCE: prior.codebook.codes(certain.ids),
        MOST_LIKELY: _codes_at(prior, most_likely(log_probability, NUM_FORECASTS)),
        SAMPLED: _codes_at(prior, draw(log_probability, NUM_FORECASTS, seeds=seeds)),
    }
    constant_velocity_m = embedding.velocity_mps[:, None, None] * decoder.time_s[:, None]  # [R, 1, T, 2]
    return {CONSTANT_VELOCITY: constant_velocity_m} | {
        method: model.decode(latents, embedding)[0] for method, latents in codes.items()
    }


def _codes_at(prior: CodePrior, places: Int[Tensor, "R K"]) -> Float[Tensor, "R K N D"]:
    return prior.codebook.codes(prior.ids_of(places, prior.model.config.num_tokens))


def _errors(
    paths_m: Float[Tensor, "R K T 2"], future_m: Float[Tensor, "R T 2"], valid: Bool[Tensor, "R T"], *, dt_s: float
) -> dict[str, Float[np.ndarray, " R"]]:
    """Errors of the nearest of the K forecasts."""
    paths = paths_m.unbind(dim=1)
    ade = torch.stack([displacement_errors_m(path, future_m, valid, dt_s=dt_s) for path in paths]).amin(dim=0)
    fde = torch.stack([final_errors_m(path, future_m, valid) for path in paths]).amin(dim=0)
    miss = torch.where(fde.isnan(), fde, (fde > _MISS_M).to(fde))
    return {name: values.cpu().numpy() for name, values in ((MIN_ADE, ade), (MIN_FDE, fde), (MISS, miss))}


def _driving_measures(
    forecasts: dict[str, Float[Tensor, "R _ T 2"]], items: Sequence[_Item], valid: Bool[np.ndarray, "R T"]
) -> Measures:
    """Speed and collisions of the first forecast of vehicles that are observed at every step; NaN for others."""
    first = {method: paths[:, 0].double().cpu().numpy() for method, paths in forecasts.items()}
    measures: Measures = {
        method: {name: np.full(len(valid), np.nan) for name in (MEAN_SPEED, COLLISION)} for method in first
    }
    rows = [(item.scene, agent) for item in items for agent in item.agents]
    for row, (scene, agent) in enumerate(rows):
        tracks, now = scene.tracks, scene.current_step
        if tracks.types[agent] != TrackType.VEHICLE or not valid[row].all():
            continue
        for method, paths in first.items():
            path = rotate(paths[row], float(tracks.heading_rad[agent, now])) + tracks.position_m[agent, now]
            motion = MeasuredMotion.of(scene, agent, path)
            hit = hits_recorded(body_corners_m(motion, scene, agent), scene, agent)
            measures[method][MEAN_SPEED][row], measures[method][COLLISION][row] = motion.mean_speed_mps, hit
    return measures


def _token_probabilities(
    model: Model, codes: Float[Tensor, "R N D"], embedding: SceneEmbedding
) -> Float[np.ndarray, "R N V"]:
    logits = model.decoder.next_token_logits(codes, embedding)[:, :-1]
    probability: np.ndarray = logits.double().softmax(dim=-1).cpu().numpy()
    return probability
