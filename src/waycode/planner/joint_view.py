"""`JointView`: a scene encoded once for several agents, which are planned for at once, from one code."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from waycode.model import MeanAndStd
from waycode.model.decoder import PRIOR_LEVELS
from waycode.objectives import JointCandidates, Likelihood, Objective, Setting
from waycode.planner.assembly import candidates_in, plans_without_search
from waycode.planner.codes import TokenCode, Tokens, check_levels, rounded_code
from waycode.planner.futures import encoder_input
from waycode.planner.joint_plan import JointPlan
from waycode.planner.plan import Plan, PlannerError
from waycode.planner.prior import draw_in_turn
from waycode.planner.view import View

MAX_AGENTS = 8  # joint models are trained with at most so many
_LIKELY_BEAM = 64  # there are too many joint codes to rate them all


@dataclass(frozen=True, kw_only=True, eq=False)
class JointView(View):
    """A scene as a joint model has encoded it for several agents. `View.setting` is that of the first."""

    settings: tuple[Setting, ...]  # of all agents

    def plan(self, objective: Objective | str, **options: Any) -> JointPlan:
        """The best joint future by an objective on `JointCandidates`; options as for `View.plan`.

        Args:
            objective: says whose it is: `agent(12): goal-point(10, 3) + all: no-collision`.
            options: as for `View.plan`.
        """
        return cast("JointPlan", super().plan(objective, **options))

    def beam(self, objective: Objective | str, **options: Any) -> list[JointPlan]:  # type: ignore[override]
        """The final beam of a search, best first; arguments as for `plan` and `View.beam`."""
        return cast("list[JointPlan]", super().beam(objective, **options))

    def most_likely(self, count: int, *, depth: int | None = None) -> list[JointPlan]:  # type: ignore[override]
        """The most likely joint futures that a beam search finds, most likely first.

        Args:
            count: number of futures.
            depth: number of tokens; by default all that the model has.
        """
        return self.beam(Likelihood(), count=count, beam_width=max(count, _LIKELY_BEAM), depth=depth, gate=False)

    def sample(  # type: ignore[override]
        self, count: int, *, depth: int | None = None, seed: int = 0, temperature: float = 1.0
    ) -> list[JointPlan]:
        """Joint futures drawn from the model's prior, token by token; arguments as for `View.sample`."""
        if count < 1:
            raise PlannerError(f"asked for {count} plans, expected at least 1")
        depth, began = self._checked_depth(depth), self.clock()
        ids = draw_in_turn(self.prior, count, depth=depth, seed=seed, temperature=temperature)
        codes = self.prior.codebook.codes(ids)
        timings_s = {"encode": self.encode_s, "decode": self.clock() - began}
        messages = [f"draw {number} from the prior with seed {seed}" for number in range(1, count + 1)]
        found = [rounded_code(code, PRIOR_LEVELS) for code in codes]
        plans = plans_without_search(
            self.decode_many(codes),
            found,
            messages,
            limits=self.gate,
            scene_doubt=self.doubt,
            timings_s=timings_s,
        )
        return cast("list[JointPlan]", plans)

    def refine(self, plan: Plan, objective: Objective | str, **options: Any) -> JointPlan:
        """A joint plan of this view after gradient steps on its latents; arguments as for `View.refine`."""
        return cast("JointPlan", super().refine(plan, objective, **options))

    def decode(self, tokens: Tokens, *, levels: int = 2) -> JointPlan:
        """The joint future of a code in this scene; arguments as for `View.decode`."""
        return cast("JointPlan", super().decode(tokens, levels=levels))

    @torch.no_grad()
    def decode_many(self, latents: Float[Tensor, "K n D"]) -> JointCandidates:  # type: ignore[override]
        """Decodes K codes of equal length to the input of objectives."""
        candidates: JointCandidates = self._decoded(latents)
        return candidates

    def encode_recording(self, *, levels: int | None = 2) -> TokenCode:
        """The encoder's code of the recorded futures of all agents.

        Args:
            levels: round the latents to these levels; None keeps them continuous.
        """
        if levels is not None:
            check_levels(levels)
        steps = self.model.config.features.future_steps
        inputs = [encoder_input(setting, None, None, num_steps=steps) for setting in self.settings]
        futures, known = zip(*inputs, strict=True)
        valid_steps = torch.tensor(np.stack(known), device=self.embedding.velocity_mps.device)
        with torch.no_grad():
            latents = self.model.encode(self._tensor(np.stack(futures)), valid_steps, self.embedding, levels=levels)
        return rounded_code(latents[0], levels)

    def candidates_of(self, decoded: MeanAndStd, *, num_tokens: int, prior: Any) -> JointCandidates:  # type: ignore[override]
        """One `Candidates` per agent, from its row of the decoded trajectories."""
        mean_m, std_m = decoded
        rows = [slice(row, row + 1) for row in range(len(self.settings))]
        return JointCandidates(
            agents=tuple(
                candidates_in(setting, (mean_m[row], std_m[row]), num_tokens=num_tokens, prior=None)
                for setting, row in zip(self.settings, rows, strict=True)
            ),
            prior=prior,
        )


def check_agents(names: Sequence[str]) -> None:
    """Raises `PlannerError` for ids of agents that cannot be planned for jointly."""
    twice = [name for name in names if list(names).count(name) > 1]
    if twice:
        raise PlannerError(f"agent {twice[0]!r} is given twice, expected every agent once")
    if not 1 <= len(names) <= MAX_AGENTS:
        raise PlannerError(f"got {len(names)} agents to plan for jointly, expected 1 to {MAX_AGENTS}")
