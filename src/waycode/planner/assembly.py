"""From the decoder's output to candidates in the scene frame, and from a candidate to a plan in the world frame."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Float
from torch import Tensor

from waycode.model import MeanAndStd, VarianceGate
from waycode.objectives import Candidates, JointCandidates, Objective, Setting, Verdict
from waycode.objectives.candidates import AnyCandidates
from waycode.planner.codes import TokenCode, as_float64
from waycode.planner.joint_plan import joint_plan
from waycode.planner.outcome import outcome_of, told_of_search, verdicts_of
from waycode.planner.plan import Plan, trace_columns
from waycode.planner.ranking import named_costs, uncertainty_reason
from waycode.planner.starting import stands, starts_along_heading
from waycode.search import SearchResult


def candidates_in(
    setting: Setting, decoded: MeanAndStd, *, num_tokens: int, prior: Callable[[], Tensor] | None
) -> Candidates:
    """Transforms the decoded trajectories of one row from the agent's frame to the scene frame.

    Vehicles that stand start along their heading, see `starting`.

    Args:
        setting: the agent and its surroundings.
        decoded: mean and standard deviation.
        num_tokens: number of tokens that they were decoded from.
        prior: computes the log probabilities of the codes; None if there are none.
    """
    mean_m, std_m = decoded[0][0], decoded[1][0]
    if stands(setting):
        mean_m = starts_along_heading(mean_m)
    return Candidates(
        position_m=mean_m @ setting.shared(_rotation).to(mean_m) + setting.start_m,
        std_m=std_m,
        num_tokens=num_tokens,
        dt_s=setting.scene.dt_s,
        setting=setting,
        prior=prior,
    )


def _rotation(setting: Setting) -> Float[Tensor, "2 2"]:
    """Rotates row vectors from the agent's frame to the scene frame: v @ rotation."""
    cos, sin = np.cos(setting.start_heading_rad), np.sin(setting.start_heading_rad)
    return setting.start_m.new_tensor([[cos, sin], [-sin, cos]])


def plan_of(candidates: AnyCandidates, index: int, *, code: TokenCode, explain: bool = True, **fields: Any) -> Plan:
    """The plan of one of the candidates, in the world frame; a `JointPlan` if several agents are planned for.

    Args:
        candidates: decoded trajectories.
        index: of the trajectory among them.
        code: that it was decoded from.
        explain: compute its log probability, if there is a prior.
        fields: further fields of the plan.
    """
    is_rated = explain and candidates.prior is not None
    log_probability = float(candidates.log_probability[index]) if is_rated else None
    if isinstance(candidates, JointCandidates):
        plans = [plan_of(one, index, code=code, explain=False, **fields) for one in candidates.agents]
        return joint_plan(plans, log_probability=log_probability)
    scene = candidates.setting.scene
    world_m = as_float64(candidates.position_m[index]) + np.asarray(scene.origin_m, np.float64)
    return Plan(
        scene_id=scene.id,
        agent_id=candidates.setting.agent_id,
        time_s=candidates.dt_s * np.arange(1, candidates.num_steps + 1, dtype=np.float64),
        x_m=np.ascontiguousarray(world_m[:, 0]),
        y_m=np.ascontiguousarray(world_m[:, 1]),
        heading_rad=as_float64(candidates.heading_rad[index]),
        speed_mps=as_float64(candidates.speed_mps[index]),
        std_m=as_float64(candidates.std_m[index]),
        tokens=code.ids,
        latents=code.latents,
        log_probability=log_probability,
        depth=len(code.latents),
        scene=scene,
        **fields,
    )


def plans_of_search(
    found: SearchResult[AnyCandidates],
    seen: Sequence[AnyCandidates],
    codes: Sequence[TokenCode],
    *,
    objective: Objective,
    asked: int,
    limits: VarianceGate | None,
    scene_doubt: str | None,
    explain: bool,
    timings_s: Mapping[str, float],
) -> list[Plan]:
    """The plans of the first entries of a beam, one per code.

    Args:
        found: the result of the search.
        seen: the candidates of each depth.
        codes: of the entries, best first.
        objective: that was searched for.
        asked: requested number of tokens.
        limits: the gate; None: none.
        scene_doubt: see `View.doubt`.
        explain: compute costs by name, the trace, the log probability and whether the plans are satisfied.
        timings_s: of all plans together.
    """
    verdicts = [verdicts_of(objective, candidates) for candidates in seen] if explain else []
    trace = _trace(found, verdicts) if explain else None
    plans = []
    for rank, code in enumerate(codes):
        index = int(found.chosen[0, rank])
        costs, alone = tuple(found.costs[0, rank].tolist()), found.decoded.select(slice(index, index + 1))
        outcome = outcome_of(
            verdicts[-1][index] if explain else Verdict(),
            told=told_of_search(found=found.depth, asked=asked, rank=rank),
            doubt=uncertainty_reason(found.decoded, index, limits),
            scene_doubt=scene_doubt,
            is_usable=all(map(math.isfinite, costs)),
            is_early=found.depth < asked,
        )
        plans.append(
            plan_of(
                found.decoded,
                index,
                code=code,
                explain=explain,
                levels=costs,
                num_decodes=found.num_decodes,
                costs=named_costs(objective, alone, costs) if explain else {},
                timings_s=timings_s,
                trace=trace,
                **vars(outcome),
            )
        )
    return plans


def _trace(found: SearchResult[AnyCandidates], verdicts: Sequence[Sequence[Verdict]]) -> pa.Table:
    """The trace of the search, with the verdict of every candidate."""
    rows = zip(found.trace.rows(), (verdict for depth in verdicts for verdict in depth), strict=True)
    told = [{**row, "satisfied": verdict.satisfied, "violated": verdict.violated} for row, verdict in rows]
    return pa.Table.from_pylist(told, schema=trace_columns())


def plans_without_search(
    candidates: AnyCandidates,
    codes: Sequence[TokenCode],
    messages: Sequence[str],
    *,
    limits: VarianceGate,
    scene_doubt: str | None,
    timings_s: Mapping[str, float],
) -> list[Plan]:
    """The plans of codes that were given or drawn: they have no costs.

    Args:
        candidates: the decoded codes.
        codes: a code per candidate.
        messages: where each code comes from.
        limits: the gate, which decides on the status; it may have no thresholds.
        scene_doubt: see `View.doubt`.
        timings_s: of all plans together.
    """
    plans = []
    for index, (code, message) in enumerate(zip(codes, messages, strict=True)):
        doubt = uncertainty_reason(candidates, index, limits)
        outcome = outcome_of(Verdict(), told=message, doubt=doubt, scene_doubt=scene_doubt)
        plans.append(
            plan_of(
                candidates,
                index,
                code=code,
                costs={},
                levels=(),
                num_decodes=len(candidates),
                timings_s=timings_s,
                **vars(outcome),
            )
        )
    return plans
