"""Data for pictures of a plan: the candidates of every search step (paper, figure 1), and the recorded path."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float32

from waycode.planner.plan import Plan, PlannerError
from waycode.planner.view import View
from waycode.plotting import SearchPanel, plan_figure


def search_panels(view: View, plan: Plan, *, levels: int = 2) -> list[SearchPanel]:
    """Decodes the candidates of each search step again, from the trace of the plan.

    Args:
        view: The view that made the plan.
        plan: A plan that was searched for, so that it has a trace.
        levels: Levels per dimension of a token, as in the search.
    """
    if plan.trace is None:
        raise PlannerError("the plan has no trace of a search: it was decoded, not searched for")
    rows = plan.trace.to_pylist()
    depths = range(1, max(row["depth"] for row in rows) + 1)
    by_depth = {depth: [row for row in rows if row["depth"] == depth] for depth in depths}
    last = by_depth[depths[-1]]
    chosen = plan.tokens or tuple(min(last, key=lambda row: row["rank"])["tokens"])  # refined plans have no tokens
    codebook = view.model.codebook(levels)
    panels = []
    for depth, candidates in by_depth.items():
        ids = torch.tensor([row["tokens"] for row in candidates], device=view.embedding.velocity_mps.device)
        panels.append(
            SearchPanel(
                position_m=view.decode_many(codebook.codes(ids)).position_m.cpu().double().numpy(),
                rejected=np.array([row["rejected"] for row in candidates], np.bool_),
                chosen=[tuple(row["tokens"]) for row in candidates].index(chosen[:depth]),
                rank=np.array([row["rank"] for row in candidates], np.int64),
                tokens=chosen[:depth],
            )
        )
    return panels


def recorded_path_m(view: View) -> Float32[np.ndarray, "S 2"] | None:
    """The agent's observed positions over the horizon of a plan, in the scene frame; None if there are none."""
    tracks, first = view.scene.tracks, view.scene.current_step + 1
    steps = slice(first, first + view.model.config.features.future_steps)
    valid = tracks.valid[view.agent, steps]
    return tracks.position_m[view.agent, steps][valid] if valid.any() else None


def figure_of(view: View, plan: Plan) -> Any:
    """The search and the plan as a matplotlib figure; a plan that was not searched for, or with other levels, alone."""
    if plan.trace is None:
        return plan.plot(view.scene)
    return plan_figure(
        view.scene, agent=view.agent, search=search_panels(view, plan), planned_m=plan.position_in(view.scene),
        recorded_m=recorded_path_m(view), note=plan.summary,
    )  # fmt: skip
