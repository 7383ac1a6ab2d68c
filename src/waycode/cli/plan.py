"""`waycode plan`: the best trajectory of a road user for an objective."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from waycode.cli.console import say, say_json
from waycode.cli.data import Flag, UsageError


@dataclass(frozen=True, kw_only=True)
class PlanCommand:
    """Plan the way of a road user: search its tokens for the trajectory that an objective likes best.

    An objective is text, such as "left-turn", "lane-change(+1) then comfort", or
    "2 * goal-point(10, 3) + comfort where road-edge"; `waycode objectives` lists what there is.
    """

    scene: tyro.conf.Positional[str]
    """A Parquet file of scenes, a dataset's folder, or the word `sample` for the bundled scenes."""
    objective: str
    """What to minimise; @FILE reads it from a text file."""
    index: int = 0
    """Which scene of the file or folder."""
    agent: str | None = None
    """Id of the road user; the ego, or else the first one to predict, if none is named."""
    model: str = "sumo-small"
    """Name of a bundled model, or folder of a model or of a run."""
    beam_width: int = 1
    """How many prefixes the search keeps; 1 is greedy."""
    depth: int | None = None
    """How many tokens to search; all that the model has if not given."""
    levels: int = 2
    """Levels per dimension of a token."""
    no_gate: Flag = False
    """Take plans that the model is not sure of for as good as others."""
    refine_steps: int = 0
    """Steps of gradient descent on the tokens that were found."""
    deadline_s: float | None = None
    """Stop the search after so many seconds, with the best plan so far."""
    threads: int = 1
    """Threads to compute with; small models are fastest with one."""
    plot: Path | None = None
    """Draw the search and the plan: .png, .pdf, .svg or .jpg."""
    json: Flag = False
    """Print the plan as JSON."""

    def run(self) -> int:
        from waycode.cli.planning import open_planner, open_scene
        from waycode.cli.planning_tables import plan_table
        from waycode.objectives import parse_objective

        objective = parse_objective(text_of(self.objective))
        scene = open_scene(self.scene, self.index)
        view = open_planner(self.model, threads=self.threads).encode(scene, self.agent)
        plan = view.plan(
            objective,
            beam_width=self.beam_width,
            depth=self.depth,
            levels=self.levels,
            gate=not self.no_gate,
            refine_steps=self.refine_steps,
            deadline_s=self.deadline_s,
        )
        if self.plot is not None:
            from waycode.cli.planning import draw_plan

            draw_plan(view, plan, self.plot, title=str(objective), levels=self.levels)
        if self.json:
            say_json(plan.as_dict())
        else:
            say(plan_table(plan, str(objective)))
            if self.plot is not None:
                say(f"{self.plot}: what was tried and found")
        return 0


def text_of(objective: str) -> str:
    """The text itself, or with an @ in front what the file says."""
    if not objective.startswith("@"):
        return objective
    path = Path(objective[1:])
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read ({error}): expected a text file with an objective") from error
