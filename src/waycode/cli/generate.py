"""`waycode generate`: new scenarios from a recorded scene."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from waycode.cli.console import (
    Count,
    DatasetPath,
    Flag,
    Folder,
    MaybeCount,
    ModelName,
    UsageError,
    check_at_least,
    say_result,
)
from waycode.cli.planning import objective_text, open_planner


@dataclass(frozen=True, kw_only=True)
class Generate:
    """Generate new scenarios from a scene: several road users get other futures, from one code of a joint model.

    With an objective, search finds the futures that fulfil it best; the others react to what it asks of one. Without
    one, futures are drawn from the model's prior. The result is a dataset like any other, with a picture of each
    scenario. Scenarios in which planned road users overlap with somebody or leave the road are marked, or left out
    with --only-sound.
    """

    data: tyro.conf.Positional[DatasetPath]
    """Scenes: folder of a dataset, Parquet file of scenes, or `sample` or `sample-crossings` for the bundled ones."""
    out: Folder
    """Folder for the new dataset and the pictures."""
    objective: Annotated[str | None, tyro.conf.arg(metavar="TEXT|@FILE")] = None
    """What to search for, such as "agent(12): goal-point(10, 3) + all: no-collision"; @FILE reads it from a file."""
    index: Count = 0
    """Index of the scene in the dataset."""
    agents: Annotated[tuple[str, ...], tyro.conf.arg(metavar="AGENT")] = ()
    """Ids of the road users that get new futures; if not given, the ego and up to 3 that interact with it."""
    count: Count = 6
    """Number of scenarios."""
    model: ModelName = "sumo-small-joint"
    """Name of a bundled joint model, or folder of a model or of a run."""
    depth: MaybeCount = None
    """Number of tokens; all that the model has if not given."""
    refine_steps: Count = 0
    """Steps of gradient descent on the tokens that were found."""
    seed: Count = 0
    """Of the draws from the prior."""
    only_sound: Flag = False
    """Leave out scenarios with faults."""
    threads: Count = 1
    """Number of threads; small models are fastest with one."""
    json: Flag = False
    """Print what was made as JSON."""

    def run(self) -> int:
        from waycode.cli.tables import scenarios_table
        from waycode.dataset.dataset import DatasetInfo, ShardContents, load_scene, write_dataset
        from waycode.dataset.files import safe_file_name
        from waycode.model.saved import find_model
        from waycode.objectives import parse_objective
        from waycode.planner.familiarity import weights_sha256
        from waycode.planner.scenario import generate_scenarios
        from waycode.plotting import save_scene_picture
        from waycode.scene.interaction import interacting_tracks

        check_at_least(1, count=self.count)
        objective = None if self.objective is None else parse_objective(objective_text(self.objective))
        scene, planner = load_scene(self.data, self.index), open_planner(self.model, threads=self.threads)
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
            "scene": scene.id, "shards": [shard.sha256 for shard in DatasetInfo.read(self.data).shards],
            "weights_sha256": weights_sha256(find_model(self.model)),
            "agents": [one.agent_id for one in found[0].plan.agents], "objective": str(objective),
            "model": self.model, "count": self.count, "depth": self.depth, "refine_steps": self.refine_steps,
            "seed": self.seed, "only_sound": self.only_sound,
        }  # fmt: skip
        write_dataset(
            self.out, [[one.scene for one in kept]], make=ShardContents, source="generated", settings=settings
        )
        for number, one in enumerate(kept, start=1):
            save_scene_picture(one.scene, self.out / f"scenario-{number}-{safe_file_name(scene.id)}.png")
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
