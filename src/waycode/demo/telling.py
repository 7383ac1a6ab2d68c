"""Tells the stories: plans for every road user that a story fits, counts who did it, and draws the best."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from waycode.demo import casting
from waycode.demo.casting import Actor
from waycode.demo.report import StoryReport
from waycode.demo.stories import SWAP, Story
from waycode.demo.verdicts import Verdict
from waycode.objectives import Reconstruction, parse_objective
from waycode.planner import Plan, Planner, PlanStatus, View
from waycode.planner.search_panels import search_panels
from waycode.plotting import ComparisonPanel, save_comparison_picture, save_plan_picture

MAX_ACTORS = 12
SWAP_LETTERS = "BCD"  # the scenes beside A in the picture


@dataclass(frozen=True, kw_only=True)
class _Take:
    """One road user's plan for a story."""

    actor: Actor
    view: View
    plan: Plan
    verdict: Verdict

    @property
    def badness(self) -> tuple[bool, bool, tuple[float, ...]]:
        """First of all it has to do what was asked, then the model has to be sure of it; the cost comes last."""
        return (
            not self.verdict.did,
            self.plan.status != PlanStatus.FOUND,
            self.plan.levels or (self.plan.final_std_m,),
        )


def tell(story: Story, actors: Sequence[Actor], planner: Planner, *, folder: Path) -> StoryReport | None:
    """Writes the picture of the best take; None if the story fits nobody."""
    takes = []
    for actor in [actor for actor in actors if story.cast(actor)][:MAX_ACTORS]:
        view = planner.encode(actor.scene, actor.agent)
        plan = view.plan(parse_objective(story.objective(actor)))
        takes.append(_Take(actor=actor, view=view, plan=plan, verdict=story.verdict(actor, plan)))
    if not takes:
        return None
    best = min(takes, key=lambda take: take.badness)
    actor, (goal_x, goal_y) = best.actor, best.actor.recorded_m[-1].tolist()
    save_plan_picture(
        actor.scene,
        folder / f"{story.name}.png",
        agent=actor.agent,
        search=search_panels(best.view, best.plan),
        planned_m=best.plan.position_in(actor.scene),
        recorded_m=actor.recorded_m,
        goal_m=(goal_x, goal_y) if story.has_goal else None,
        route=story.shows_route,
        speeds=story.shows_speed,
    )
    return _report(story, takes, best)


def tell_swap(actors: Sequence[Actor], planner: Planner, *, folder: Path) -> StoryReport | None:
    """Carries the tokens of a recorded left turn to other cars that could turn left (paper, figure 4)."""
    turned = [actor for actor in actors if casting.turned_left(actor)]
    # The encoder's own code is one way to tokens; those that search finds reconstruct better (paper, table 1).
    codes = [planner.encode(actor.scene, actor.agent).plan(Reconstruction()) for actor in turned]
    if not codes:
        return None
    origin, code = min(zip(turned, codes, strict=True), key=lambda pair: pair[1].levels)
    takes = []
    for actor in [actor for actor in actors if SWAP.cast(actor) and actor is not origin][:MAX_ACTORS]:
        view = planner.encode(actor.scene, actor.agent)
        plan = view.decode(code.tokens or ())
        takes.append(_Take(actor=actor, view=view, plan=plan, verdict=SWAP.verdict(actor, plan)))
    if not takes:
        return None
    takes.sort(key=lambda take: take.badness)
    panels = [_panel(origin, code, "A: tokens of this recording")]
    shown = zip(SWAP_LETTERS, takes, strict=False)  # as many as there are
    panels += [_panel(take.actor, take.plan, f"{name}: same tokens") for name, take in shown]
    save_comparison_picture(panels, folder / f"{SWAP.name}.png")
    return _report(SWAP, takes, takes[0])


def _panel(actor: Actor, plan: Plan, caption: str) -> ComparisonPanel:
    return ComparisonPanel(
        scene=actor.scene,
        agent=actor.agent,
        planned_m=plan.position_in(actor.scene),
        recorded_m=actor.recorded_m,
        caption=caption,
        detail=f"original: {actor.manoeuvre}; tokens {' '.join(map(str, plan.tokens or ()))}",
    )


def _report(story: Story, takes: Sequence[_Take], best: _Take) -> StoryReport:
    actor, plan = best.actor, best.plan
    return StoryReport(
        name=story.name,
        title=story.title,
        asked=story.asked,
        look=story.look,
        criterion=story.criterion,
        found=f"It {best.verdict.measured}.",
        objective=story.objective(actor),
        picture=f"{story.name}.png",
        scene_id=actor.scene.id,
        scene_index=actor.scene_index,
        agent_id=actor.agent_id,
        tokens=plan.tokens or (),
        status=str(plan.status),
        costs=dict(plan.costs),
        did=best.verdict.did,
        did_it=sum(take.verdict.did for take in takes),
        num_actors=len(takes),
        plan_ms=1e3 * (plan.timings_s["search"] if "search" in plan.timings_s else plan.timings_s["decode"]),
    )
