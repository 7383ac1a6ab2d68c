"""`View`: a scene encoded once for one agent. Searching, refining and decoding in it are cheap.

Axes: K candidates, W beam entries, n tokens, D dimensions of a token, M cost levels, t steps of a given trajectory.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from waycode.model import MeanAndStd, Model, SceneEmbedding, VarianceGate
from waycode.model.decoder import PRIOR_LEVELS
from waycode.objectives import Candidates, Objective, Setting, TerminalVariance
from waycode.planner.assembly import candidates_in, plan_of, plans_of_search, plans_without_search
from waycode.planner.codes import TokenCode, Tokens, as_code, check_levels, rounded_code
from waycode.planner.familiarity import Familiarity, measure_scene
from waycode.planner.futures import encoder_input
from waycode.planner.outcome import outcome_of, told_of_search, verdicts_of
from waycode.planner.plan import Plan, PlannerError, PlanStatus
from waycode.planner.prior import CodePrior, draw, most_likely
from waycode.planner.ranking import (
    as_function,
    checked_gate,
    cost_levels,
    descent_cost,
    named_costs,
    uncertainty_reason,
)
from waycode.planner.refinement import best_visited
from waycode.planner.searching import search_view
from waycode.scene import Scene
from waycode.scene.arguments import check_kind, check_type

_MAX_CANDIDATES = 20_000  # decoded at once, for one token of a search: more take minutes and gigabytes


@dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """A scene as the model has encoded it for one agent. Immutable: all plans share it."""

    model: Model
    gate: VarianceGate
    familiarity: Familiarity | None = None  # notices scenes of an unknown kind; None if it is not calibrated
    setting: Setting  # the agent and its surroundings
    embedding: SceneEmbedding  # the encoded scene, with the decoder's keys and values
    encode_s: float  # duration of the encoding, per agent
    clock: Callable[[], float] = time.perf_counter  # for deadlines and timings

    def __repr__(self) -> str:
        doubt = "" if self.doubt is None else f"; unlike the scenes that the model knows ({self.doubt})"
        return f"View of {self.setting.agent_id!r} in {self.scene!r}{doubt}"

    @property
    def scene(self) -> Scene:
        return self.setting.scene

    def plot(self, plan: Plan) -> Any:
        """The search and the plan as a matplotlib figure, which notebooks show; a plan without a trace alone."""
        from waycode.planner.search_panels import figure_of

        check_type(Plan, PlannerError, plan=plan)
        return figure_of(self, plan)

    @property
    def agent(self) -> int:
        """Index of the track that is planned for."""
        return self.setting.agent

    @cached_property
    def doubt(self) -> str | None:
        """Why the scene is of a kind that the model does not know; None if it knows it or was not calibrated."""
        if self.familiarity is None:
            return None
        return self.familiarity.doubt(measure_scene(self.embedding, self.setting))

    def plan(
        self,
        objective: Objective | str,
        *,
        beam_width: int = 1,
        depth: int | None = None,
        levels: int = 2,
        gate: bool = True,
        by_certainty: bool = True,
        refine_steps: int = 0,
        refine_objective: Objective | str | None = None,
        deadline_s: float | None = None,
    ) -> Plan:
        """The best trajectory by an objective: token by token search, then gradient descent if `refine_steps` > 0.

        Args:
            objective: a function from `Candidates` to costs, or an objective as text. The lowest cost is best.
            beam_width: number of prefixes kept after each token; 1 is greedy search.
            depth: number of tokens; by default all that the model has.
            levels: codebook levels per dimension of a token (the paper's N_l).
            gate: rank plans that the model is uncertain of behind all others.
            by_certainty: of candidates with equal costs, prefer the one that the model is most certain of (ours);
                False keeps the order of the codebook.
            refine_steps: gradient steps after the search; they move the latents off the codebook's levels.
            refine_objective: the cost that gradient steps minimise; by default the differentiable parts of `objective`.
            deadline_s: time limit for search and refinement. The best plan found by then is returned.
        """
        objective = as_function(objective)
        check_kind("a whole number", PlannerError, refine_steps=refine_steps)
        if refine_steps < 0:
            raise PlannerError(f"refine_steps is {refine_steps}, expected at least 0")
        descended = objective if refine_objective is None else as_function(refine_objective)
        if refine_steps > 0:
            descent_cost(descended)  # raises before the search if the objective has no gradient
        began = self.clock()
        (plan,) = self.beam(
            objective, count=1, beam_width=beam_width, depth=depth, levels=levels, gate=gate,
            by_certainty=by_certainty, deadline_s=deadline_s,
        )  # fmt: skip
        left_s = None if deadline_s is None else deadline_s - (self.clock() - began)
        out_of_time = left_s is not None and left_s <= 0
        if refine_steps == 0 or out_of_time or plan.status in (PlanStatus.NO_COST, PlanStatus.DEADLINE):
            return plan
        return self.refine(plan, descended, steps=refine_steps, gate=gate, deadline_s=left_s, report=objective)

    def beam(
        self,
        objective: Objective | str,
        *,
        count: int | None = None,
        beam_width: int = 1,
        depth: int | None = None,
        levels: int = 2,
        gate: bool = True,
        by_certainty: bool = True,
        deadline_s: float | None = None,
        explain: bool = True,
    ) -> list[Plan]:
        """The final beam of a search, best first.

        Args:
            objective, beam_width, depth, levels, gate, by_certainty, deadline_s: as for `plan`.
            count: number of plans to return; by default the whole beam.
            explain: compute `Plan.costs`, `Plan.trace`, `Plan.log_probability` and `Plan.satisfied`, which takes a few
                milliseconds. Without it, `Plan.status` does not tell violated constraints.
        """
        objective, depth = as_function(objective), self._checked_depth(depth)
        check_kind("a whole number", PlannerError, beam_width=beam_width, levels=levels, count=count)
        check_kind("a number", PlannerError, deadline_s=deadline_s)
        for name, value, least in (("beam_width", beam_width, 1), ("levels", levels, 2)):
            if value < least:
                raise PlannerError(f"{name} is {value}, expected at least {least}")
        num_candidates = beam_width * len(self.model.codebook(levels))
        if num_candidates > _MAX_CANDIDATES:
            raise PlannerError(
                f"levels is {levels} and beam_width {beam_width}: {num_candidates:,} candidates for each token, "
                f"expected at most {_MAX_CANDIDATES:,}"
            )
        if deadline_s is not None and not deadline_s >= 0:
            raise PlannerError(f"deadline_s is {deadline_s}, expected a number of seconds of at least 0")
        limits, began = checked_gate(self.gate, depth) if gate else None, self.clock()
        found, seen = search_view(
            self, objective, depth, beam_width=beam_width, levels=levels, limits=limits, by_certainty=by_certainty,
            deadline_s=deadline_s,
        )  # fmt: skip
        timings_s = {"encode": self.encode_s, "search": self.clock() - began}
        codes = [rounded_code(code, levels) for code in self.model.codebook(levels).codes(found.ids[0, :count])]
        return plans_of_search(
            found, seen, codes, objective=objective, asked=depth, limits=limits, explain=explain, timings_s=timings_s,
            scene_doubt=self.doubt if gate and explain else None,
        )  # fmt: skip

    def candidates(self, count: int, *, depth: int | None = None) -> list[Plan]:
        """`count` different trajectories without an objective, best first.

        Those that are most likely by the model's prior (see `most_likely`), or without a prior those that the model is
        most certain of.

        Args:
            count: number of trajectories; without a prior also the beam width of the search.
            depth: number of tokens; by default all that the model has.
        """
        if self.model.config.prior:
            return self.most_likely(count, depth=depth)
        depth, gate = self._checked_count(count, depth), bool(self.gate.sigma_max_m)
        return self.beam(TerminalVariance(), count=count, beam_width=count, depth=depth, gate=gate)

    def most_likely(self, count: int, *, depth: int | None = None) -> list[Plan]:
        """The `count` most likely of all codes by the model's prior, most likely first; an exact search.

        Args:
            count: number of plans.
            depth: number of tokens; by default all that the model has.
        """
        depth, began = self._checked_count(count, depth), self.clock()
        log_probability = self.prior.of_all_codes(depth)
        ranked = most_likely(log_probability, count)[0]
        messages = [f"the {'' if rank == 1 else f'{rank}. '}most likely code" for rank in range(1, count + 1)]
        return self._plans_of(ranked, log_probability[0], depth=depth, messages=messages, began=began)

    def sample(self, count: int, *, depth: int | None = None, seed: int = 0, temperature: float = 1.0) -> list[Plan]:
        """Plans of codes drawn from the model's prior, independently: the same code may come twice.

        Args:
            count: number of plans.
            depth: number of tokens; by default all that the model has.
            seed: the same seed draws the same codes; more draws keep the earlier ones.
            temperature: codes are drawn in proportion to their probability to the power of 1 / temperature. Below 1,
                likely codes become more frequent; above 1, all codes become more alike.
        """
        check_kind("a whole number", PlannerError, count=count)
        if count < 1:
            raise PlannerError(f"asked for {count} plans, expected at least 1")
        depth, began = self._checked_depth(depth), self.clock()
        log_probability = self.prior.of_all_codes(depth)
        drawn = draw(log_probability, count, seeds=[seed], temperature=temperature)[0]
        messages = [f"draw {number} from the prior with seed {seed}" for number in range(1, count + 1)]
        return self._plans_of(drawn, log_probability[0], depth=depth, messages=messages, began=began)

    def log_probability(self, tokens: Tokens) -> float:
        """Log probability in nats of a code in this scene, by the model's prior.

        Args:
            tokens: token ids [n] or a code of `PRIOR_LEVELS` levels. Latents [n, D] count as the nearest code.
        """
        code = as_code(tokens, levels=PRIOR_LEVELS, config=self.model.config)
        if code.levels not in (PRIOR_LEVELS, None):
            raise PlannerError(f"the code has {code.levels} levels, but the prior is of codes with {PRIOR_LEVELS}")
        return float(self.prior.of_nearest(self._tensor(code.latents)[None])[0])

    @cached_property
    def prior(self) -> CodePrior:
        """The prior over codes in this scene; raises `PlannerError` if the model has none."""
        return CodePrior(model=self.model, scene=self.embedding)

    def refine(
        self,
        plan: Plan,
        objective: Objective | str,
        *,
        steps: int,
        gate: bool = True,
        deadline_s: float | None = None,
        report: Objective | None = None,
    ) -> Plan:
        """A plan of this view after gradient steps on its latents; never worse than before.

        Of all latents on the way, the best is kept: accepted by the gate before rejected, then by the objective. If
        the objective is lexicographic, the steps descend the sum of its differentiable levels.

        Args:
            plan: the plan to refine.
            objective: the cost to minimise, or an objective as text.
            steps: number of gradient steps; the paper uses 5 to 40.
            gate: rank latents that the model is uncertain of behind all others.
            deadline_s: time limit. The best latents found by then are returned.
            report: the objective whose costs the refined plan has; by default `objective`.
        """
        if steps < 0:
            raise PlannerError(f"steps is {steps}, expected at least 0")
        began, objective = self.clock(), as_function(objective)
        limits = checked_gate(self.gate, plan.depth) if gate else None
        found = best_visited(
            self._decoded, objective, self._tensor(plan.latents), steps=steps, limits=limits, deadline_s=deadline_s,
            clock=self.clock,
        )  # fmt: skip
        num_decodes, done = plan.num_decodes + found.num_decodes, f"{found.steps} step{'' if found.steps == 1 else 's'}"
        if found.is_start:
            return replace(
                plan,
                message=f"{plan.message}; refinement found nothing better in {done}",
                num_decodes=num_decodes,
                timings_s={**plan.timings_s, "refine": self.clock() - began},
            )
        candidate, reported = found.candidate, objective if report is None else report
        costs = tuple(cost_levels(reported, candidate)[0].tolist())
        outcome = outcome_of(
            verdicts_of(reported, candidate)[0],
            told=f"{told_of_search(found=plan.depth, asked=plan.depth, rank=0)}, refined in {done}",
            doubt=uncertainty_reason(candidate, 0, limits),
            scene_doubt=self.doubt if gate else None,
        )
        return plan_of(
            candidate,
            0,
            code=rounded_code(found.latents, None),  # off the codebook's levels: no token ids
            costs=named_costs(reported, candidate, costs),
            levels=costs,
            num_decodes=num_decodes,
            timings_s={**plan.timings_s, "refine": self.clock() - began},
            trace=plan.trace,
            **vars(outcome),
        )

    def decode(self, tokens: Tokens, *, levels: int = 2) -> Plan:
        """The trajectory of a code in this scene.

        Args:
            tokens: token ids [n], latents [n, D], or a code made in another scene.
            levels: codebook levels of the token ids.
        """
        began, code = self.clock(), as_code(tokens, levels=levels, config=self.model.config)
        candidates = self.decode_many(self._tensor(code.latents)[None])
        if code.levels not in (PRIOR_LEVELS, None):
            candidates = replace(candidates, prior=None)
        timings_s = {"encode": self.encode_s, "decode": self.clock() - began}
        told = ["decoded as asked"]
        return plans_without_search(
            candidates, [code], told, limits=self.gate, scene_doubt=self.doubt, timings_s=timings_s
        )[0]

    @torch.no_grad()
    def decode_many(self, latents: Float[Tensor, "K n D"]) -> Candidates:
        """Decodes K codes of equal length to the input of objectives."""
        candidates: Candidates = self._decoded(latents)
        return candidates

    def encode_trajectory(
        self,
        position_m: Float[np.ndarray, "t 2"] | None = None,
        valid: Bool[np.ndarray, " t"] | None = None,
        *,
        levels: int | None = 2,
    ) -> TokenCode:
        """The encoder's code of a trajectory. For the code that fits best, plan with the objective `Reconstruction`.

        Args:
            position_m: positions in the scene frame at the steps after the current one; by default the agent's
                recorded future.
            valid: which positions count; by default all.
            levels: round the latents to these levels; None keeps them continuous.
        """
        if levels is not None:
            check_levels(levels)
        num_steps = self.model.config.features.future_steps
        future_m, known = encoder_input(self.setting, position_m, valid, num_steps=num_steps)
        observed = torch.tensor(known, device=self.embedding.velocity_mps.device)[None]
        with torch.no_grad():
            latents = self.model.encode(self._tensor(future_m)[None], observed, self.embedding, levels=levels)[0]
        return rounded_code(latents, levels)

    def _decoded(self, latents: Float[Tensor, "K n D"]) -> Any:
        """`candidates_of` whole codes, with gradients with respect to the latents."""
        decoded = self.model.decode(latents.to(self.embedding.velocity_mps)[None], self.embedding)
        rate = partial(self.prior.of_nearest, latents.detach()) if self.model.config.prior else None
        return self.candidates_of(decoded, num_tokens=latents.shape[1], prior=rate)

    def candidates_of(self, decoded: MeanAndStd, *, num_tokens: int, prior: Callable[[], Tensor] | None) -> Candidates:
        """Decoded trajectories as the input of objectives; arguments as for `candidates_in`."""
        return candidates_in(self.setting, decoded, num_tokens=num_tokens, prior=prior)

    def _plans_of(
        self,
        places: Int[Tensor, " K"],
        log_probability: Float[Tensor, " C"],
        *,
        depth: int,
        messages: Sequence[str],
        began: float,
    ) -> list[Plan]:
        """Plans of the codes at these places of `CodePrior.of_all_codes`, whose result is given."""
        codes = self.prior.codebook.codes(self.prior.ids_of(places, depth))
        candidates = replace(self.decode_many(codes), prior=lambda: log_probability[places])
        timings_s = {"encode": self.encode_s, "decode": self.clock() - began}
        found = [rounded_code(code, PRIOR_LEVELS) for code in codes]
        return plans_without_search(
            candidates, found, messages, limits=self.gate, scene_doubt=self.doubt, timings_s=timings_s
        )

    def _checked_depth(self, depth: int | None) -> int:
        available = self.model.config.num_tokens
        check_kind("a whole number", PlannerError, depth=depth)
        depth = available if depth is None else depth
        if not 1 <= depth <= available:
            raise PlannerError(f"depth is {depth}, expected 1 to {available} tokens")
        return depth

    def _checked_count(self, count: int, depth: int | None) -> int:
        """The depth, if there are that many codes of it."""
        check_kind("a whole number", PlannerError, count=count)
        depth = self._checked_depth(depth)
        available = len(self.model.codebook(PRIOR_LEVELS)) ** depth
        if not 1 <= count <= available:
            raise PlannerError(f"asked for {count} candidates, expected 1 to {available}: there are no more codes")
        return depth

    def _tensor(self, values: np.ndarray) -> Tensor:
        return self.embedding.velocity_mps.new_tensor(values)
