"""Lets the search look at one scene: decodes prefixes in the scene frame and asks the objective and the gate."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from waycode.model import MeanAndStd, Model, PrefixCache, PrefixDecoder, SceneEmbedding
from waycode.objectives import Candidates, Setting
from waycode.planner.errors import PlannerError
from waycode.planner.judging import Objective, checked_thresholds, costs_of, too_uncertain
from waycode.search import SearchResult, beam_search

_Counted = tuple[PrefixCache | Tensor, int]  # prefixes and the number of their tokens


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How a plan is searched for."""

    depth: int
    beam_width: int = 1
    levels: int = 2
    deadline_s: float | None = None

    def __post_init__(self) -> None:
        for name, least in (("depth", 1), ("beam_width", 1), ("levels", 2)):
            if getattr(self, name) < least:
                raise PlannerError(f"{name} is {getattr(self, name)}, expected at least {least}")
        if self.deadline_s is not None and not self.deadline_s >= 0:
            raise PlannerError(f"deadline_s is {self.deadline_s}, expected a number of seconds of at least 0")


@dataclass(frozen=True, kw_only=True, eq=False)
class SceneDecoder:
    """Decodes and searches codes of one agent in one scene."""

    model: Model
    memory: SceneEmbedding
    setting: Setting

    def decode(self, latents: Float[Tensor, "K n D"]) -> Candidates:
        """The trajectories of whole codes, with gradients to the latents."""
        decoded = self.model.decode(latents.to(self.memory.velocity_mps)[None], self.memory)
        return self._in_scene(decoded, num_tokens=latents.shape[1])

    def search(
        self, objective: Objective, *, options: SearchOptions, sigma_max_m: Mapping[int, float] | None
    ) -> SearchResult[Candidates]:
        """Beam search; without thresholds, no candidate is rejected."""
        decode = PrefixDecoder(self.model, self.memory)
        thresholds = None if sigma_max_m is None else checked_thresholds(sigma_max_m, options.depth)

        def extend(state: _Counted | None, parents: Tensor, tokens: Tensor) -> tuple[_Counted, Candidates]:
            before, count = (None, 0) if state is None else state
            longer, decoded = decode(before, parents, tokens)
            return (longer, count + 1), self._in_scene(decoded, num_tokens=count + 1)

        def rejects(candidates: Candidates, num_tokens: int) -> Tensor:
            return too_uncertain(candidates, thresholds or {})[None]

        return beam_search(
            extend,
            lambda candidates: costs_of(objective, candidates),
            codebook=self.model.codebook(options.levels),
            num_rows=1,
            depth=options.depth,
            beam_width=options.beam_width,
            gate=None if thresholds is None else rejects,
            doubt=lambda candidates: candidates.final_std_m[None],  # objectives that are content leave a choice
            deadline_s=options.deadline_s,
            device=self.memory.velocity_mps.device,
        )

    def _in_scene(self, decoded: MeanAndStd, *, num_tokens: int) -> Candidates:
        """From the agent's frame to the scene frame."""
        mean_m, std_m = decoded
        return Candidates(
            position_m=mean_m[0] @ self._turn + self.setting.start_m,
            std_m=std_m[0],
            num_tokens=num_tokens,
            dt_s=self.model.config.features.dt_s,
            setting=self.setting,
        )

    @cached_property
    def _turn(self) -> Float[Tensor, "2 2"]:
        """Turns vectors of the agent's frame into those of the scene frame; rows are vectors: v @ turn."""
        cos, sin = np.cos(self.setting.start_heading_rad), np.sin(self.setting.start_heading_rad)
        return torch.tensor([[cos, sin], [-sin, cos]]).to(self.memory.velocity_mps)
