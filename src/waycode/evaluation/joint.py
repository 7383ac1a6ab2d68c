"""Guided joint futures: every agent's goal is the last position of its recording (paper, sections 5.4, A.8 and A.9).

The protocol of MotionDiffuser: search minimises the mean final error over the agents of a scene; realism is the ADE by
WOMD's convention, a mean over the horizons 3, 5 and 8 s (the paper's is one over types of road users too). "min" is the
best of the 6 futures of lowest cost in a beam of 64, "mean" is the one future that greedy search finds. All errors are
those of whole scenes: means over their agents.

S scenes, R rows (agents of all scenes), k futures of a scene, T steps, n tokens.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, islice

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from waycode.evaluation.guidance import RECORDED
from waycode.evaluation.metrics import displacement_errors_m
from waycode.evaluation.motion import MeasuredMotion
from waycode.evaluation.realism import body_corners_m
from waycode.evaluation.report import EvaluationError
from waycode.features import collate, extract
from waycode.model import Model, PrefixDecoder, SceneEmbedding
from waycode.planner import recorded_agents
from waycode.scene import Scene
from waycode.scene.frames import rotate
from waycode.scene.geometry import boxes_overlap
from waycode.scene.interaction import interacting_tracks
from waycode.search import beam_search, refine

BEAM_WIDTH, NUM_KEPT = 64, 6
PAPER_AGENTS = 2  # per scene: the paper evaluates on WOMD's interactive split, whose scenes have two agents to predict
SEARCH_DEPTH, REFINED_DEPTH, REFINE_STEPS = 8, 7, 40  # the paper's, of 12 tokens
SEARCH, REFINED = "search", "search + refinement"
MIN_ADE, MEAN_ADE, MIN_FDE, MEAN_FDE = "min_ade_m", "mean_ade_m", "min_fde_m", "mean_fde_m"
OVERLAP = "overlap"  # share of the scenes in which two of the modelled agents overlap at some step
_BATCH_SCENES = 4  # bounds the memory: a beam of 64 has 512 candidates per agent
_OPTIMISED = ((40, 1), (120, 1), (40, 8), (120, 8))  # gradient steps and random starts of the baseline

JointMeasures = dict[str, dict[str, Float[np.ndarray, " S"]]]  # method -> measure -> value per scene


@dataclass(frozen=True, kw_only=True)
class JointBatch:
    """Some scenes, their interacting agents, and the recorded futures of these."""

    model: Model
    scenes: list[Scene]
    agents: list[list[int]]  # tracks, per scene
    embedding: SceneEmbedding
    future_m: Float[Tensor, "R T 2"]
    valid: Bool[Tensor, "R T"]

    @property
    def last(self) -> Int[Tensor, " R"]:
        """The last step at which each agent was observed."""
        steps = torch.arange(self.valid.shape[1], device=self.valid.device)
        return torch.where(self.valid, steps, -1).amax(dim=1).clamp(min=0)

    def final_error_m(self, mean_m: Float[Tensor, "R k T 2"]) -> Float[Tensor, "S k"]:
        """Mean final error of k futures of each scene: what search and refinement minimise."""
        rows = torch.arange(len(self.last), device=mean_m.device)
        goal = self.future_m[rows, self.last]  # [R, 2]
        distance = (mean_m[rows, :, self.last] - goal[:, None]).norm(dim=-1)
        return self.embedding.tokens.of_codes(distance)

    def error_m(self, mean_m: Float[Tensor, "R k T 2"]) -> Float[Tensor, "S k"]:
        """ADE of k futures of each scene: the mean over its agents and over the horizons 3, 5 and 8 s, as in WOMD."""
        count = mean_m.shape[1]
        future_m, valid = (recorded.repeat_interleave(count, dim=0) for recorded in (self.future_m, self.valid))
        dt_s = self.model.config.features.dt_s
        error_m = displacement_errors_m(mean_m.flatten(0, 1), future_m, valid, dt_s=dt_s)
        return self.embedding.tokens.of_codes(error_m.view(-1, count))

    def search(self, *, depth: int, beam_width: int = 1, keep: int = 1) -> Float[Tensor, "S {keep} {depth} D"]:
        """The `keep` best codes of a search for the goals."""
        found = beam_search(
            PrefixDecoder(self.model, self.embedding), lambda decoded: self.final_error_m(decoded[0]),
            codebook=self.model.codebook(), num_rows=len(self.scenes), depth=depth, beam_width=beam_width,
            device=self.future_m.device,
        )  # fmt: skip
        return self.model.codebook().codes(found.ids[:, :keep])

    def refined(self, codes: Float[Tensor, "S k n D"], *, steps: int) -> Float[Tensor, "S k n D"]:
        """The codes after gradient steps toward the goals."""

        def cost(decoded: tuple[Tensor, Tensor]) -> Tensor:
            return self.final_error_m(decoded[0]).flatten()

        decode = PrefixDecoder(self.model, self.embedding).decode
        return refine(decode, cost, codes.flatten(0, 1), steps=steps).latents.view_as(codes)

    @torch.no_grad()
    def decode(self, codes: Float[Tensor, "S k n D"]) -> Float[Tensor, "R k T 2"]:
        return self.model.decode(codes, self.embedding)[0]

    def has_overlap(self, mean_m: Float[Tensor, "R T 2"]) -> Bool[np.ndarray, " S"]:
        """In which scenes two of the agents overlap at some step at which both were observed."""
        paths_m, valid = mean_m.double().cpu().numpy(), self.valid.cpu().numpy()
        row, found = 0, []
        for scene, agents in zip(self.scenes, self.agents, strict=True):
            tracks, now = scene.tracks, scene.current_step
            boxes = []
            for place, agent in enumerate(agents):
                path_m = rotate(paths_m[row + place], float(tracks.heading_rad[agent, now]))
                motion = MeasuredMotion.of(scene, agent, path_m + tracks.position_m[agent, now])
                boxes.append(body_corners_m(motion, scene, agent))
            seen = valid[row : row + len(agents)]
            found.append(
                any(
                    bool((boxes_overlap(boxes[one], boxes[other]) & seen[one] & seen[other]).any())
                    for one, other in combinations(range(len(agents)), 2)
                )
            )
            row += len(agents)
        return np.array(found, np.bool_)


def joint_batches(
    model: Model, scenes: Iterable[Scene], *, choose: Callable[[Scene], list[int]], on_scenes: Callable[[int], None]
) -> Iterator[JointBatch]:
    """Scenes in batches, each with some of its agents.

    Args:
        model: a joint model.
        scenes: with recorded futures; scenes in which no two agents are chosen are left out.
        choose: tracks of a scene, such as `interacting`.
        on_scenes: called with the number of scenes read.
    """
    if not model.config.joint:
        raise EvaluationError("the model encodes every agent on its own, expected a joint model (recipe small-joint)")
    remaining = iter(scenes)
    while batch := list(islice(remaining, _BATCH_SCENES)):
        chosen = []
        for scene in batch:
            agents = choose(scene)
            if len(agents) > 1:
                chosen.append((scene, agents))
        if chosen:
            examples = [extract(scene, agents, config=model.config.features) for scene, agents in chosen]
            tensors = collate(examples).to(next(model.parameters()).device)
            with torch.no_grad():
                embedding = model.encode_scene(tensors.scene, tensors.agents)
            rows = tensors.agents.mask
            yield JointBatch(
                model=model,
                scenes=[scene for scene, _ in chosen],
                agents=[agents for _, agents in chosen],
                embedding=embedding,
                future_m=tensors.future_m[rows],
                valid=tensors.future_valid[rows],
            )
        on_scenes(len(batch))


def interacting(scene: Scene, *, count: int) -> list[int]:
    """The first track to predict and those that come nearest to it: up to `count` in all that were recorded."""
    recorded = recorded_agents(scene)
    agents = interacting_tracks(scene, recorded[0], count=count) if recorded else []
    future = scene.tracks.valid[:, scene.current_step + 1 :]
    return [agent for agent in agents if future[agent].any()]


def joint_guidance(batch: JointBatch) -> JointMeasures:
    """Search alone, and search with refinement, beside the recording."""
    tokens = batch.model.config.num_tokens
    measures: JointMeasures = {RECORDED: {OVERLAP: batch.has_overlap(batch.future_m).astype(np.float64)}}
    for method, depth, steps in ((SEARCH, SEARCH_DEPTH, 0), (REFINED, REFINED_DEPTH, REFINE_STEPS)):
        depth = min(depth, tokens)
        best, one = batch.search(depth=depth, beam_width=BEAM_WIDTH, keep=NUM_KEPT), batch.search(depth=depth)
        if steps:
            best, one = batch.refined(best, steps=steps), batch.refined(one, steps=steps)
        single_m = batch.decode(one)
        overlap = batch.has_overlap(single_m[:, 0]).astype(np.float64)
        measures[method] = {**_errors(batch, batch.decode(best), single_m), OVERLAP: overlap}
    return measures


def depth_sweep(batch: JointBatch) -> JointMeasures:
    """Search alone with 1 to N tokens: realism against the objective (figure A9)."""
    measures: JointMeasures = {}
    for depth in range(1, batch.model.config.num_tokens + 1):
        best, one = batch.search(depth=depth, beam_width=BEAM_WIDTH, keep=NUM_KEPT), batch.search(depth=depth)
        name = f"{depth} token{'s' if depth > 1 else ''}"
        measures[name] = _errors(batch, batch.decode(best), batch.decode(one))
    return measures


def _errors(
    batch: JointBatch, several_m: Float[Tensor, "R k T 2"], single_m: Float[Tensor, "R 1 T 2"]
) -> dict[str, Float[np.ndarray, " S"]]:
    """The least errors of several futures of each scene, and those of the one that greedy search finds."""
    return {
        MIN_ADE: _numpy(batch.error_m(several_m).amin(dim=1)),
        MEAN_ADE: _numpy(batch.error_m(single_m)[:, 0]),
        MIN_FDE: _numpy(batch.final_error_m(several_m).amin(dim=1)),
        MEAN_FDE: _numpy(batch.final_error_m(single_m)[:, 0]),
    }


def search_vs_optimisation(batch: JointBatch) -> JointMeasures:
    """One future of each scene by search, by search and refinement, and by gradient steps from random codes alone."""
    generator, scenes = torch.Generator("cpu").manual_seed(0), len(batch.scenes)
    depth = min(SEARCH_DEPTH, batch.model.config.num_tokens)

    def by_gradient(steps: int, starts: int) -> Tensor:
        shape = (scenes, starts, depth, batch.model.config.token_dim)
        start = (2 * torch.rand(shape, generator=generator, device="cpu") - 1).to(batch.future_m)
        found = batch.refined(start, steps=steps)
        best = batch.final_error_m(batch.decode(found)).argmin(dim=1)  # as search does, by the objective
        return found[torch.arange(scenes, device=best.device), best][:, None]

    methods: dict[str, Callable[[], Tensor]] = {
        SEARCH: lambda: batch.search(depth=depth),
        REFINED: lambda: batch.refined(batch.search(depth=min(REFINED_DEPTH, depth)), steps=REFINE_STEPS),
    }
    for steps, starts in _OPTIMISED:
        name = f"{steps} steps from {starts} random start{'s' if starts > 1 else ''}"
        methods[name] = lambda steps=steps, starts=starts: by_gradient(steps, starts)  # type: ignore[misc]
    measures: JointMeasures = {}
    for name, find in methods.items():
        began = time.perf_counter()
        codes = find()
        seconds = (time.perf_counter() - began) / scenes
        future_m = batch.decode(codes)
        measures[name] = {
            MEAN_ADE: _numpy(batch.error_m(future_m)[:, 0]),
            MEAN_FDE: _numpy(batch.final_error_m(future_m)[:, 0]),
            "seconds_per_scene": np.full(scenes, seconds),
        }
    return measures


def _numpy(values: Float[Tensor, " S"]) -> Float[np.ndarray, " S"]:
    found: np.ndarray = values.detach().cpu().double().numpy()
    return found
