"""From one decoded candidate to a plan in the world frame, with a sentence that says what it is worth."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from waycode.objectives import Candidates
from waycode.planner.codes import TokenCode, as_float64
from waycode.planner.plan import Plan, PlanStatus


def assemble(
    candidate: Candidates,
    *,
    code: TokenCode,
    costs: Mapping[str, float],
    levels: tuple[float, ...],
    status: PlanStatus,
    message: str,
    num_decodes: int,
    timings_s: Mapping[str, float],
    trace: pa.Table | None = None,
) -> Plan:
    """The plan of a single candidate (K = 1)."""
    scene = candidate.setting.scene
    world_m = as_float64(candidate.position_m[0]) + np.asarray(scene.origin_m, np.float64)
    return Plan(
        scene_id=scene.id,
        agent_id=candidate.setting.agent_id,
        time_s=candidate.dt_s * np.arange(1, candidate.num_steps + 1, dtype=np.float64),
        x_m=np.ascontiguousarray(world_m[:, 0]),
        y_m=np.ascontiguousarray(world_m[:, 1]),
        heading_rad=as_float64(candidate.heading_rad[0]),
        speed_mps=as_float64(candidate.speed_mps[0]),
        std_m=as_float64(candidate.std_m[0]),
        tokens=code.ids,
        latents=code.latents,
        costs=dict(costs),
        levels=levels,
        status=status,
        message=message,
        depth=len(code.latents),
        num_decodes=num_decodes,
        timings_s=dict(timings_s),
        trace=trace,
    )


def search_message(status: PlanStatus, *, found: int, asked: int, place: int, doubt: str | None) -> str:
    """One sentence on what a search of `asked` tokens has found; `doubt` says why the model is not sure of it."""
    which = ("the best plan" if place == 0 else f"plan {place + 1}") + f" of {found} token{'s' if found > 1 else ''}"
    sentence = {
        PlanStatus.FOUND: which,
        PlanStatus.UNCERTAIN: f"the model is not sure of {which}",
        PlanStatus.DEADLINE: which,
        PlanStatus.NO_COST: "the objective is infinite or not a number for every trajectory: none was chosen by it",
    }[status]
    early = f"; the deadline left no time for {asked} tokens" if found < asked else ""
    return sentence + ("" if doubt is None else f" ({doubt})") + early


def doubt_of(candidate: Candidates, sigma_max_m: Mapping[int, float] | None) -> str | None:
    """Why the model is not sure of a trajectory, or None if it is (or if there is no threshold)."""
    limit = (sigma_max_m or {}).get(candidate.num_tokens)
    spread = float(candidate.final_std_m[0])
    if limit is None or spread <= limit:
        return None
    return f"its final standard deviation is {spread:.2f} m, above the limit of {limit:.2f} m"
