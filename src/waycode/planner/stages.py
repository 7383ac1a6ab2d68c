"""The search behind a plan, for pictures: all candidates of every token (paper, figure 1). Needs matplotlib."""

import numpy as np
import torch

from waycode.planner.plan import Plan, PlannerError
from waycode.planner.view import View
from waycode.plotting.plan_layers import Stage


def stages_of(view: View, plan: Plan, *, levels: int = 2) -> list[Stage]:
    """What was tried at each depth, decoded once more; `levels` as in the search."""
    if plan.trace is None:
        raise PlannerError("the plan has no trace of a search: it was decoded, not searched for")
    rows = plan.trace.to_pylist()
    depths = range(1, max(row["depth"] for row in rows) + 1)
    by_depth = {depth: [row for row in rows if row["depth"] == depth] for depth in depths}
    last = by_depth[depths[-1]]
    chosen = plan.tokens or tuple(min(last, key=lambda row: row["rank"])["tokens"])  # refined plans have no tokens
    codebook = view.model.codebook(levels)
    stages = []
    for depth, tried in by_depth.items():
        ids = torch.tensor([row["tokens"] for row in tried], device=view.embedding.velocity_mps.device)
        stages.append(
            Stage(
                position_m=view.decode_many(codebook.codes(ids)).position_m.cpu().double().numpy(),
                rejected=np.array([row["rejected"] for row in tried], np.bool_),
                chosen=[tuple(row["tokens"]) for row in tried].index(chosen[:depth]),
                rank=np.array([row["rank"] for row in tried], np.int64),
                tokens=chosen[:depth],
            )
        )
    return stages
