"""A scene as seen by one road user, encoded once; plans, decodes and codes in it are cheap.

Axes: K candidates, n tokens, D dimensions of a token, t steps.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from waycode.model import Model, SceneEmbedding, SceneTokens
from waycode.objectives import Candidates, Setting, TerminalVariance
from waycode.planner.assembling import assemble, doubt_of, search_message
from waycode.planner.codes import TokenCode, Tokens, code_of, rounded
from waycode.planner.errors import PlannerError
from waycode.planner.futures import in_agent_frame, recorded_future
from waycode.planner.judging import Objective, costs_by_name, levels_of
from waycode.planner.plan import Plan, PlanStatus
from waycode.planner.refining import Refinement, refine_latents, slope_of
from waycode.planner.searching import SceneDecoder, SearchOptions
from waycode.scene import Scene
from waycode.search import SearchResult


@dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """What the model has seen of a scene. A value: it never changes, and all its plans share it."""

    model: Model
    sigma_max_m: Mapping[int, float]  # by number of tokens
    setting: Setting
    seen: SceneTokens
    memory: SceneEmbedding
    encode_s: float  # how long it took to make this view

    @property
    def scene(self) -> Scene:
        return self.setting.scene

    @property
    def agent(self) -> int:
        """Index of the track that is planned for."""
        return self.setting.agent

    def plan(
        self,
        objective: Objective,
        *,
        beam_width: int = 1,
        depth: int | None = None,
        levels: int = 2,
        gate: bool = True,
        refine_steps: int = 0,
        refine_objective: Objective | None = None,
        deadline_s: float | None = None,
    ) -> Plan:
        """The trajectory that the objective likes best, found token by token and, if asked for, refined by gradients.

        `depth` tokens are used (all that the model has by default). The gate puts plans that the model is sure of
        before all others. `refine_steps` steps of Adam then move the tokens off their levels, down the slope of
        `refine_objective` (of the objective itself by default). `deadline_s` bounds search and refinement: the plan is
        the best that was found by then.
        """
        if refine_steps < 0:
            raise PlannerError(f"refine_steps is {refine_steps}, expected at least 0")
        slope = slope_of(objective, refine_objective) if refine_steps > 0 else None
        options = self._options(depth=depth, beam_width=beam_width, levels=levels, deadline_s=deadline_s)
        limits = self.sigma_max_m if gate else None
        began = time.perf_counter()
        found = self._decoder.search(objective, options=options, sigma_max_m=limits)
        (plan,) = self._plans(found, objective, count=1, options=options, limits=limits, began=began)
        searched = time.perf_counter()
        left_s = None if deadline_s is None else deadline_s - (searched - began)
        late = left_s is not None and left_s <= 0
        if slope is None or late or plan.status in (PlanStatus.NO_COST, PlanStatus.DEADLINE):
            return plan
        refinement = refine_latents(
            self._decoder,
            self._tensor(plan.latents),
            slope=slope,
            judge=slope if refine_objective is not None else objective,
            steps=refine_steps,
            sigma_max_m=limits,
            deadline_s=left_s,
        )
        return self._refined(plan, refinement, objective, limits=limits, began=searched)

    def candidates(self, count: int, *, depth: int | None = None, levels: int = 2) -> list[Plan]:
        """Different trajectories that the model is most sure of, without any objective; the surest first."""
        options = self._options(depth=depth, beam_width=max(count, 1), levels=levels)
        available = len(self.model.codebook(levels)) ** options.depth
        if not 1 <= count <= available:
            raise PlannerError(f"asked for {count} candidates, expected 1 to {available}: there are no more codes")
        limits, objective = self.sigma_max_m or None, TerminalVariance()
        began = time.perf_counter()
        found = self._decoder.search(objective, options=options, sigma_max_m=limits)
        return self._plans(found, objective, count=count, options=options, limits=limits, began=began)

    def decode(self, tokens: Tokens, *, levels: int = 2) -> Plan:
        """The trajectory of a code in this scene: token ids [n], latents [n, D], or a code made in another scene."""
        code = code_of(tokens, levels=levels, config=self.model.config)
        began = time.perf_counter()
        candidate = self.decode_many(self._tensor(code.latents)[None])
        doubt = doubt_of(candidate, self.sigma_max_m)
        return assemble(
            candidate,
            code=code,
            costs={},
            levels=(),
            status=PlanStatus.FOUND if doubt is None else PlanStatus.UNCERTAIN,
            message="decoded as asked" if doubt is None else f"the model is not sure of this code ({doubt})",
            num_decodes=1,
            timings_s={"encode": self.encode_s, "decode": time.perf_counter() - began},
        )

    @torch.no_grad()
    def decode_many(self, latents: Float[Tensor, "K n D"]) -> Candidates:
        """Codes of the same length at once, as an objective gets to see them."""
        return self._decoder.decode(latents)

    def encode_trajectory(
        self,
        position_m: Float[np.ndarray, "t 2"] | None = None,
        valid: Bool[np.ndarray, " t"] | None = None,
        *,
        levels: int | None = 2,
    ) -> TokenCode:
        """The code of a trajectory: positions in the scene frame at the steps after the current one.

        By default it is the agent's recorded future. With `levels` None, the latents are not rounded. This is what the
        encoder says; for the code that fits best, plan with the objective `Reconstruction`.
        """
        num_steps = self.model.config.features.future_steps
        if position_m is None:
            future_m, known = recorded_future(self.scene, self.agent, num_steps=num_steps)
        else:
            future_m, known = in_agent_frame(self.scene, self.agent, position_m, valid, num_steps=num_steps)
        seen_steps = torch.tensor(known)[None].to(self.memory.velocity_mps.device)
        with torch.no_grad():
            latents = self.model.encode(self._tensor(future_m)[None], seen_steps, self.seen)[0]
        return rounded(latents, levels)

    @cached_property
    def _decoder(self) -> SceneDecoder:
        return SceneDecoder(model=self.model, memory=self.memory, setting=self.setting)

    def _options(
        self, *, depth: int | None, beam_width: int, levels: int, deadline_s: float | None = None
    ) -> SearchOptions:
        available = self.model.config.num_tokens
        depth = available if depth is None else depth
        if depth > available:
            raise PlannerError(f"depth is {depth}, expected 1 to {available}: the model has no more tokens")
        return SearchOptions(depth=depth, beam_width=beam_width, levels=levels, deadline_s=deadline_s)

    def _plans(
        self,
        found: SearchResult[Candidates],
        objective: Objective,
        *,
        count: int,
        options: SearchOptions,
        limits: Mapping[int, float] | None,
        began: float,
    ) -> list[Plan]:
        """The first of the beam as plans."""
        timings_s = {"encode": self.encode_s, "search": time.perf_counter() - began}
        codes = self.model.codebook(options.levels).codes(found.ids[0])
        trace = found.trace.to_table(0)
        plans = []
        for place, chosen in enumerate(found.chosen[0, :count].tolist()):
            candidate = found.decoded.select(slice(chosen, chosen + 1))
            doubt = doubt_of(candidate, limits)
            status = found.status[0] if place == 0 else PlanStatus.FOUND if doubt is None else PlanStatus.UNCERTAIN
            costs = tuple(found.costs[0, place].tolist())
            plans.append(
                assemble(
                    candidate,
                    code=rounded(codes[place], options.levels),
                    costs=costs_by_name(objective, candidate, costs),
                    levels=costs,
                    status=status,
                    message=search_message(status, found=found.depth, asked=options.depth, place=place, doubt=doubt),
                    num_decodes=found.num_decodes,
                    timings_s=timings_s,
                    trace=trace,
                )
            )
        return plans

    def _refined(
        self,
        plan: Plan,
        refinement: Refinement,
        objective: Objective,
        *,
        limits: Mapping[int, float] | None,
        began: float,
    ) -> Plan:
        """The plan after refinement; the tokens are gone if the latents have moved."""
        num_decodes = plan.num_decodes + refinement.num_decodes
        steps = f"{refinement.steps} step{'' if refinement.steps == 1 else 's'}"  # the deadline may leave time for few
        timings_s = {**plan.timings_s, "refine": time.perf_counter() - began}
        if not refinement.moved:
            message = f"{plan.message}; refinement found nothing better in {steps}"
            return replace(plan, message=message, num_decodes=num_decodes, timings_s=timings_s)
        candidate = refinement.candidate
        doubt = doubt_of(candidate, limits)
        levels = tuple(levels_of(objective, candidate)[0].tolist())
        status = PlanStatus.FOUND if doubt is None else PlanStatus.UNCERTAIN
        message = search_message(status, found=plan.depth, asked=plan.depth, place=0, doubt=doubt)
        return assemble(
            candidate,
            code=rounded(refinement.latents, None),
            costs=costs_by_name(objective, candidate, levels),
            levels=levels,
            status=status,
            message=f"{message}; refined in {steps}",
            num_decodes=num_decodes,
            timings_s=timings_s,
            trace=plan.trace,
        )

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.tensor(values).to(self.memory.velocity_mps)
