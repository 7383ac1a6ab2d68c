"""Draws the pictures of docs/concepts.md from the bundled scenes and model; run it again when the weights change.

    python docs/pictures.py [FOLDER]

The four pictures go to docs/images, or to FOLDER. Scenes are chosen by a rule that the page tells, not by hand.
"""

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

import waycode as wc
from waycode.objectives import GoalPoint, LeftTurn, Reconstruction
from waycode.planner.ranking import final_spread_m
from waycode.planner.search_panels import recorded_path_m
from waycode.plotting import ComparisonPanel, SearchPanel, comparison_figure, save_comparison_picture, save_plan_picture
from waycode.plotting.scene_picture import write_figure
from waycode.plotting.style import DEFAULT_STYLE, Layer
from waycode.scene import TrackType
from waycode.scene.manoeuvre import Manoeuvre, classify

IMAGES = Path(__file__).parent / "images"
_MODEL = "sumo-small"
_SAMPLES = ("sample", "sample-crossings")
_NO_CROSSING = {"curved_road", "roundabout", "on_ramp"}
_ELSEWHERE = 3  # scenes that a code is carried to
_GOAL_SCENE, _GOAL_M = ("sample-crossings", 10), (22.0, 0.0)  # metres ahead of the agent and to its left
_REFINE_STEPS = (0, 5, 40)
_DOTS_PER_INCH = 90


def views_at_crossings(planner: wc.Planner) -> Iterator[wc.View]:
    """The vehicles to predict of every bundled scene with a crossing, as views."""
    for name in _SAMPLES:
        for scene in wc.Dataset(name):
            tracks = scene.tracks
            vehicles = [one for one in tracks.to_predict.tolist() if tracks.types[one] == TrackType.VEHICLE]
            if vehicles and not set(scene.tags) & _NO_CROSSING:
                yield from planner.encode_agents(scene, vehicles)


def best_left_turn(views: list[wc.View]) -> wc.View:
    """Of the vehicles that turned left, the one whose turn the model reconstructs best."""
    turned = [view for view in views if classify(view.scene)[view.agent] == Manoeuvre.LEFT_TURN]
    return min(turned, key=lambda view: view.plan(Reconstruction()).levels)


def all_codes(view: wc.View, depth: int) -> SearchPanel:
    """Every code of `depth` tokens in this scene; the one nearest to the recording is chosen."""
    codebook = view.model.codebook(2)
    ids = torch.tensor(list(itertools.product(range(len(codebook)), repeat=depth)))
    candidates = view.decode_many(codebook.codes(ids))
    cost = Reconstruction()(candidates)
    chosen = int(cost.argmin())
    return SearchPanel(
        position_m=candidates.position_m.double().numpy(),
        rejected=np.zeros(len(ids), np.bool_),  # the gate has a picture of its own
        chosen=chosen,
        rank=cost.argsort().argsort().numpy(),
        tokens=tuple(ids[chosen].tolist()),
    )


def panel_of(view: wc.View, plan: wc.Plan, *, caption: str, detail: str, recorded: bool = True) -> ComparisonPanel:
    """A plan in its scene."""
    return ComparisonPanel(
        scene=view.scene, agent=view.agent, planned_m=plan.position_in(view.scene), caption=caption, detail=detail,
        recorded_m=recorded_path_m(view) if recorded else None,
    )  # fmt: skip


def draw_code(views: list[wc.View], turn: wc.View, path: Path) -> None:
    """The code of a recorded turn in its own scene, and for vehicles elsewhere that turn left by it as well."""
    found = turn.plan(Reconstruction())
    assert found.tokens is not None  # noqa: S101 (the plan was not refined)
    words = " ".join(map(str, found.tokens))
    error = f"{found.levels[0]:.2f} m from the recording on average"
    panels = [panel_of(turn, found, caption=f"three tokens: {words}", detail=error)]
    for view in views:
        swapped = view.decode(found.tokens)
        candidates = view.decode_many(torch.tensor(swapped.latents[None], dtype=torch.float32))
        is_new = view.scene.id not in {panel.scene.id for panel in panels} and view.scene.tags != panels[-1].scene.tags
        did_not_turn = classify(view.scene)[view.agent] != Manoeuvre.LEFT_TURN
        if is_new and did_not_turn and LeftTurn().met(candidates)[0].satisfied and len(panels) <= _ELSEWHERE:
            panels.append(panel_of(view, swapped, caption="the same tokens elsewhere", detail=view.scene.id))
    save_comparison_picture(panels, path, dots_per_inch=_DOTS_PER_INCH)


def draw_coarse_to_fine(view: wc.View, path: Path) -> None:
    """All codes of one, two and three tokens in one scene."""
    panels = [all_codes(view, depth) for depth in (1, 2, 3)]
    save_plan_picture(
        view.scene, path, agent=view.agent, search=panels, planned_m=panels[-1].position_m[panels[-1].chosen],
        recorded_m=recorded_path_m(view), dots_per_inch=_DOTS_PER_INCH,
    )  # fmt: skip


def draw_gate(views: list[wc.View], path: Path) -> None:
    """Of the vehicles that turn left without the gate and not with it, the one with the most uncertain turn."""

    def spread_m(view: wc.View, plan: wc.Plan) -> float:
        return float(final_spread_m(view.decode_many(torch.tensor(plan.latents)[None]), view.gate)[0])

    both = [(view, view.plan(LeftTurn(), gate=False), view.plan(LeftTurn())) for view in views]
    prevented = [three for three in both if three[1].satisfied and not three[2].satisfied and not three[2].rejected]
    view, free, gated = max(prevented, key=lambda three: spread_m(*three[:2]))
    limit_m = view.gate.sigma_max_m[free.depth]
    panels = [
        panel_of(
            view, plan, caption=caption, detail=f"uncertain by {spread_m(view, plan):.1f} m, limit {limit_m:.1f} m"
        )
        for caption, plan in (("left turn, without the gate", free), ("left turn, with the gate", gated))
    ]
    save_comparison_picture(panels, path, note=gated.summary, dots_per_inch=_DOTS_PER_INCH)


def draw_refinement(planner: wc.Planner, path: Path) -> None:
    """The plan for a goal after search, and after gradient steps on its latents."""
    view, goal = planner.encode(wc.load_scene(*_GOAL_SCENE)), GoalPoint(*_GOAL_M, frame="agent")
    plans = {steps: view.plan(goal, refine_steps=steps) for steps in _REFINE_STEPS}
    panels = [
        panel_of(
            view, plan, recorded=False, caption=f"{steps} gradient steps" if steps else "found by search",
            detail=f"{plan.levels[0]:.2f} m from the goal",
        )
        for steps, plan in plans.items()
    ]  # fmt: skip
    figure = comparison_figure(panels)
    for axes in figure.axes:  # the agent is at the origin and faces up
        axes.scatter(
            -_GOAL_M[1], _GOAL_M[0], marker="X", s=120, c=DEFAULT_STYLE.goal, edgecolors="white",
            zorder=Layer.ANNOTATIONS,
        )  # fmt: skip
    write_figure(figure.axes[0].get_figure(root=True), path, dots_per_inch=_DOTS_PER_INCH)


def main() -> None:
    """Draws all pictures."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    planner = wc.Planner.from_pretrained(_MODEL)
    views = list(views_at_crossings(planner))
    turn = best_left_turn(views)
    draw_code(views, turn, folder / "concept_code.png")
    draw_coarse_to_fine(turn, folder / "concept_coarse_to_fine.png")
    draw_gate(views, folder / "concept_gate.png")
    draw_refinement(planner, folder / "concept_refinement.png")


if __name__ == "__main__":
    main()
