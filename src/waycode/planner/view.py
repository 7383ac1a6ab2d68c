"""`View`: a scene encoded once for one agent. Searching, refining and decoding in it are cheap.

Axes: K candidates, W beam entries, n tokens, D dimensions of a token, M cost levels, t steps of a given trajectory.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from waycode.model import MeanAndStd, Model, PrefixCache, PrefixDecoder, SceneEmbedding
from waycode.objectives import BaseObjective, Candidates, Objective, Setting, TerminalVariance
from waycode.planner.codes import TokenCode, Tokens, as_code, as_float64, rounded_code
from waycode.planner.plan import Plan, PlannerError, PlanStatus, search_message
from waycode.planner.ranking import (
    as_function,
    checked_costs,
    cost_levels,
    descent_cost,
    named_costs,
    too_uncertain,
    uncertainty_reason,
)
from waycode.scene import Scene
from waycode.scene.frames import rotate
from waycode.search import SearchResult, beam_search, refine


@dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """A scene as the model has encoded it for one agent. Immutable: all plans share it."""

    model: Model
    sigma_max_m: Mapping[int, float]  # the gate: largest accepted final standard deviation, by number of tokens
    setting: Setting  # the agent and its surroundings
    embedding: SceneEmbedding  # the encoded scene, with the decoder's keys and values
    encode_s: float  # duration of the encoding
    clock: Callable[[], float] = time.perf_counter  # for deadlines and timings

    @property
    def scene(self) -> Scene:
        return self.setting.scene

    @property
    def agent(self) -> int:
        """Index of the track that is planned for."""
        return self.setting.agent

    def plan(
        self,
        objective: Objective | str,
        *,
        beam_width: int = 1,
        depth: int | None = None,
        levels: int = 2,
        gate: bool = True,
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
            refine_steps: gradient steps after the search; they move the latents off the codebook's levels.
            refine_objective: the cost that gradient steps minimise; by default the differentiable parts of `objective`.
            deadline_s: time limit for search and refinement. The best plan found by then is returned.
        """
        objective = as_function(objective)
        if refine_steps < 0:
            raise PlannerError(f"refine_steps is {refine_steps}, expected at least 0")
        descended = objective if refine_objective is None else as_function(refine_objective)
        if refine_steps > 0:
            descent_cost(descended)  # raises before the search if the objective has no gradient
        began = self.clock()
        (plan,) = self.beam(
            objective, count=1, beam_width=beam_width, depth=depth, levels=levels, gate=gate, deadline_s=deadline_s
        )
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
        deadline_s: float | None = None,
        explain: bool = True,
    ) -> list[Plan]:
        """The final beam of a search, best first.

        Args:
            objective, beam_width, depth, levels, gate, deadline_s: as for `plan`.
            count: number of plans to return; by default the whole beam.
            explain: compute `Plan.costs` and `Plan.trace`, which takes about a millisecond more.
        """
        objective, available = as_function(objective), self.model.config.num_tokens
        depth = available if depth is None else depth
        if depth > available:
            raise PlannerError(f"depth is {depth}, expected 1 to {available}: the model has no more tokens")
        for name, value, least in (("depth", depth, 1), ("beam_width", beam_width, 1), ("levels", levels, 2)):
            if value < least:
                raise PlannerError(f"{name} is {value}, expected at least {least}")
        if deadline_s is not None and not deadline_s >= 0:
            raise PlannerError(f"deadline_s is {deadline_s}, expected a number of seconds of at least 0")
        limits, began = self._gate_limits(depth) if gate else None, self.clock()
        found = self._search(
            objective, depth, beam_width=beam_width, levels=levels, limits=limits, deadline_s=deadline_s
        )
        timings_s = {"encode": self.encode_s, "search": self.clock() - began}
        codes = self.model.codebook(levels).codes(found.ids[0])
        trace = found.trace.to_table(0) if explain else None
        plans = []
        for rank, chosen in enumerate(found.chosen[0, :count].tolist()):
            doubt = uncertainty_reason(found.decoded, chosen, limits)
            status = found.status[0] if rank == 0 else PlanStatus.FOUND if doubt is None else PlanStatus.UNCERTAIN
            costs = tuple(found.costs[0, rank].tolist())
            plans.append(
                self._assembled(
                    found.decoded,
                    chosen,
                    code=rounded_code(codes[rank], levels),
                    costs=named_costs(objective, found.decoded.select(slice(chosen, chosen + 1)), costs)
                    if explain
                    else {},
                    levels=costs,
                    status=status,
                    message=search_message(status, found=found.depth, asked=depth, rank=rank, doubt=doubt),
                    num_decodes=found.num_decodes,
                    timings_s=timings_s,
                    trace=trace,
                )
            )
        return plans

    def candidates(self, count: int, *, depth: int | None = None, levels: int = 2) -> list[Plan]:
        """`count` different trajectories that the model is most certain of, without an objective; most certain first.

        Args:
            count: number of trajectories, and beam width of the search.
            depth, levels: as for `plan`.
        """
        config, gate = self.model.config, bool(self.sigma_max_m)
        available = (levels**config.token_dim) ** (config.num_tokens if depth is None else depth)
        if levels >= 2 and not 1 <= count <= available:  # `beam` checks the levels and the depth
            raise PlannerError(f"asked for {count} candidates, expected 1 to {available}: there are no more codes")
        return self.beam(TerminalVariance(), count=count, beam_width=count, depth=depth, levels=levels, gate=gate)

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
        limits = self._gate_limits(plan.depth) if gate else None
        descend = descent_cost(objective)
        is_descended = not isinstance(objective, BaseObjective) or objective.differentiable
        visited: list[tuple[tuple[float, ...], Tensor, Candidates]] = []  # rank, latents, candidate

        def cost(decoded: tuple[Tensor, Candidates]) -> Tensor:
            latents, candidate = decoded
            costs = descend(candidate)
            with torch.no_grad():
                rejected = limits is not None and bool(too_uncertain(candidate, limits)[0])
                compared = costs if is_descended else cost_levels(objective, candidate)
            visited.append(((float(rejected), *compared[0].reshape(-1).tolist()), latents.detach()[0], candidate))
            return costs if costs.ndim == 1 else costs.sum(dim=1)

        start = self._tensor(plan.latents)[None]
        made = refine(
            lambda latents: (latents, self._decoded(latents)),
            cost,
            start,
            steps=steps,
            deadline_s=deadline_s,
            clock=self.clock,
        ).steps
        usable = [place for place, (rank, _, _) in enumerate(visited) if all(map(math.isfinite, rank))]
        best = min(usable, key=lambda place: visited[place][0], default=0)  # if equal, the earliest
        num_decodes = plan.num_decodes + len(visited)
        done = f"{made} step{'' if made == 1 else 's'}"
        if best == 0:
            return replace(
                plan,
                message=f"{plan.message}; refinement found nothing better in {done}",
                num_decodes=num_decodes,
                timings_s={**plan.timings_s, "refine": self.clock() - began},
            )
        _, latents, seen = visited[best]
        candidate = replace(seen, position_m=seen.position_m.detach(), std_m=seen.std_m.detach())
        doubt, reported = uncertainty_reason(candidate, 0, limits), objective if report is None else report
        costs = tuple(cost_levels(reported, candidate)[0].tolist())
        status = PlanStatus.FOUND if doubt is None else PlanStatus.UNCERTAIN
        message = search_message(status, found=plan.depth, asked=plan.depth, rank=0, doubt=doubt)
        return self._assembled(
            candidate,
            0,
            code=rounded_code(latents, None),  # off the codebook's levels: no token ids
            costs=named_costs(reported, candidate, costs),
            levels=costs,
            status=status,
            message=f"{message}; refined in {done}",
            num_decodes=num_decodes,
            timings_s={**plan.timings_s, "refine": self.clock() - began},
            trace=plan.trace,
        )

    def decode(self, tokens: Tokens, *, levels: int = 2) -> Plan:
        """The trajectory of a code in this scene.

        Args:
            tokens: token ids [n], latents [n, D], or a code made in another scene.
            levels: codebook levels of the token ids.
        """
        code, began = as_code(tokens, levels=levels, config=self.model.config), self.clock()
        candidate = self.decode_many(self._tensor(code.latents)[None])
        doubt = uncertainty_reason(candidate, 0, self.sigma_max_m)
        return self._assembled(
            candidate,
            0,
            code=code,
            costs={},
            levels=(),
            status=PlanStatus.FOUND if doubt is None else PlanStatus.UNCERTAIN,
            message="decoded as asked" if doubt is None else f"the model is uncertain of this code ({doubt})",
            num_decodes=1,
            timings_s={"encode": self.encode_s, "decode": self.clock() - began},
        )

    @torch.no_grad()
    def decode_many(self, latents: Float[Tensor, "K n D"]) -> Candidates:
        """Decodes K codes of equal length to the input of objectives."""
        return self._decoded(latents)

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
        tracks, now, num_steps = self.scene.tracks, self.scene.current_step, self.model.config.features.future_steps
        if position_m is None:
            steps = slice(now + 1, now + 1 + num_steps)
            position_m, valid = tracks.position_m[self.agent, steps], tracks.valid[self.agent, steps]
            if not valid.any():
                raise PlannerError(
                    f"agent {self.setting.agent_id!r} of scene {self.scene.id!r} has no recorded future: "
                    "give a trajectory"
                )
        position_m, count = np.asarray(position_m, np.float64), len(position_m)
        known = np.ones(count, np.bool_) if valid is None else valid
        if position_m.shape != (count, 2) or known.shape != (count,) or count > num_steps:
            raise PlannerError(
                f"the trajectory has shape {list(position_m.shape)} and validity {list(known.shape)}, "
                f"expected [t, 2] and [t] with at most {num_steps} steps"
            )
        if not known.any() or not np.isfinite(position_m[known]).all():
            raise PlannerError("the trajectory has no valid step, or a valid one that is not finite: expected numbers")
        offset = np.where(known[:, None], position_m, 0) - tracks.position_m[self.agent, now]
        future_m, future_valid = np.zeros((num_steps, 2), np.float32), np.zeros(num_steps, np.bool_)
        future_m[:count] = rotate(offset, -self.setting.start_heading_rad) * known[:, None]
        future_valid[:count] = known
        observed = torch.tensor(future_valid, device=self.embedding.velocity_mps.device)[None]
        with torch.no_grad():
            latents = self.model.encode(self._tensor(future_m)[None], observed, self.embedding)[0]
        return rounded_code(latents, levels)

    def _search(
        self,
        objective: Objective,
        depth: int,
        *,
        beam_width: int,
        levels: int,
        limits: Mapping[int, float] | None,
        deadline_s: float | None,
    ) -> SearchResult[Candidates]:
        """Beam search over the decoder's prefixes; `limits` are the gate's thresholds."""
        decode = PrefixDecoder(self.model, self.embedding)

        def extend(
            state: tuple[PrefixCache | Tensor, int] | None, parents: Tensor, tokens: Tensor
        ) -> tuple[tuple[PrefixCache | Tensor, int], Candidates]:
            prefix, length = (None, 0) if state is None else state
            longer, decoded = decode(prefix, parents, tokens)
            return (longer, length + 1), self._in_scene(decoded, num_tokens=length + 1)

        return beam_search(
            extend,
            lambda candidates: checked_costs(objective, candidates),
            codebook=self.model.codebook(levels),
            num_rows=1,
            depth=depth,
            beam_width=beam_width,
            gate=None if limits is None else lambda candidates, _: too_uncertain(candidates, limits)[None],
            tie_break=lambda candidates: candidates.final_std_m[None],  # among equal costs, the most certain (ours)
            deadline_s=deadline_s,
            clock=self.clock,
            device=self.embedding.velocity_mps.device,
        )

    def _gate_limits(self, depth: int) -> Mapping[int, float]:
        missing = sorted(set(range(1, depth + 1)) - set(self.sigma_max_m))
        if missing:
            raise PlannerError(
                f"the model has no threshold of uncertainty (sigma_max_m) for {missing} tokens; "
                f"available: {sorted(self.sigma_max_m) or 'none'}; plan with gate=False, or give the planner thresholds"
            )
        return self.sigma_max_m

    def _decoded(self, latents: Float[Tensor, "K n D"]) -> Candidates:
        """The trajectories of whole codes, with gradients with respect to the latents."""
        decoded = self.model.decode(latents.to(self.embedding.velocity_mps)[None], self.embedding)
        return self._in_scene(decoded, num_tokens=latents.shape[1])

    def _in_scene(self, decoded: MeanAndStd, *, num_tokens: int) -> Candidates:
        """Transforms decoded trajectories from the agent's frame to the scene frame."""
        mean_m, std_m = decoded
        return Candidates(
            position_m=mean_m[0] @ self._rotation + self.setting.start_m,
            std_m=std_m[0],
            num_tokens=num_tokens,
            dt_s=self.model.config.features.dt_s,
            setting=self.setting,
        )

    @cached_property
    def _rotation(self) -> Float[Tensor, "2 2"]:
        """Rotates row vectors from the agent's frame to the scene frame: v @ rotation."""
        cos, sin = np.cos(self.setting.start_heading_rad), np.sin(self.setting.start_heading_rad)
        return self.embedding.velocity_mps.new_tensor([[cos, sin], [-sin, cos]])

    def _assembled(self, candidates: Candidates, index: int, *, code: TokenCode, **fields: Any) -> Plan:
        """The plan of one of the candidates, in the world frame."""
        scene = self.scene
        world_m = as_float64(candidates.position_m[index]) + np.asarray(scene.origin_m, np.float64)
        return Plan(
            scene_id=scene.id,
            agent_id=self.setting.agent_id,
            time_s=candidates.dt_s * np.arange(1, candidates.num_steps + 1, dtype=np.float64),
            x_m=np.ascontiguousarray(world_m[:, 0]),
            y_m=np.ascontiguousarray(world_m[:, 1]),
            heading_rad=as_float64(candidates.heading_rad[index]),
            speed_mps=as_float64(candidates.speed_mps[index]),
            std_m=as_float64(candidates.std_m[index]),
            tokens=code.ids,
            latents=code.latents,
            depth=len(code.latents),
            **fields,
        )

    def _tensor(self, values: np.ndarray) -> Tensor:
        return self.embedding.velocity_mps.new_tensor(values)
