"""`waycode generate`: new scenarios from a recorded scene."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from waycode.cli.console import Flag, UsageError, check_at_least, say_result
from waycode.cli.planning import objective_text, open_planner, open_scene


@dataclass(frozen=True, kw_only=True)
class Generate:
    """Generate new scenarios from a scene: several road users get other futures, from one code of a joint model.

    With an objective, search finds the futures that fulfil it best; the others react to what it asks of one. Without
    one, futures are drawn from the model's prior. The result is a dataset like any other, with a picture of each
    scenario. Scenarios in which planned road users overlap with somebody or leave the road are marked, or left out
    with --only-sound.
    """

    scene: tyro.conf.Positional[str]
    """A Parquet file of scenes, the folder of a dataset, or the word `sample` for the bundled scenes."""
    out: Path
    """Folder for the new dataset and the pictures."""
    objective: str | None = None
    """What to search for, such as "agent(12): goal-point(10, 3) + all: no-collision"; @FILE reads it from a file."""
    index: int = 0
    """Index of the scene in the file or folder."""
    agents: tuple[str, ...] = ()
    """Ids of the road users that get new futures; if not given, the ego and up to 3 that interact with it."""
    count: int = 6
    """Number of scenarios."""
    model: str = "sumo-small-joint"
    """Name of a bundled joint model, or folder of a model or of a run."""
    depth: int | None = None
    """Number of tokens; all that the model has if not given."""
    refine_steps: int = 0
    """Steps of gradient descent on the tokens that were found."""
    seed: int = 0
    """Of the draws from the prior."""
    only_sound: Flag = False
    """Leave out scenarios with faults."""
    threads: int = 1
    """Number of threads; small models are fastest with one."""
    json: Flag = False
    """Print what was made as JSON."""

    def run(self) -> int:
        from waycode.cli.tables import scenarios_table
        from waycode.dataset.dataset import ShardContents, write_dataset
        from waycode.objectives import parse_objective
        from waycode.planner.scenario import generate_scenarios
        from waycode.plotting import save_scene_picture
        from waycode.scene.interaction import interacting_tracks

        check_at_least(1, count=self.count)
        objective = None if self.objective is None else parse_objective(objective_text(self.objective))
        scene, planner = open_scene(self.scene, self.index), open_planner(self.model, threads=self.threads)
        agents: list[int | str] = list(self.agents)
        if not agents:
            first = planner.encode(scene).agent
            agents = list(interacting_tracks(scene, first, count=4))
        view = planner.encode(scene, agents=agents)
        found = generate_scenarios(
            view, objective, count=self.count, depth=self.depth, refine_steps=self.refine_steps, seed=self.seed
        )
        kept = [one for one in found if not (self.only_sound and one.faults)]
        if not kept:
            raise UsageError(f"all {len(found)} scenarios have faults, the first: {'; '.join(found[0].faults)}")
        settings = {
            "scene": scene.id, "agents": [one.agent_id for one in found[0].plan.agents], "objective": str(objective),
            "model": self.model, "count": self.count, "depth": self.depth, "refine_steps": self.refine_steps,
            "seed": self.seed, "only_sound": self.only_sound,
        }  # fmt: skip
        write_dataset(
            self.out, [[one.scene for one in kept]], make=ShardContents, source="generated", settings=settings
        )
        for one in kept:
            save_scene_picture(one.scene, self.out / f"{one.scene.id}.png")
        rows = [
            {
                "scene": one.scene.id,
                "costs": dict(one.plan.costs),
                "message": one.plan.message,
                "faults": list(one.faults),
            }
            for one in found
        ]
        text = f"{self.out}: {len(kept)} of {len(found)} scenarios, each with its picture"
        say_result(rows, scenarios_table(found), text, as_json=self.json)
        return 0
