"""`waycode swap`: what one road user did, done by another in another scene (paper, section 5.2)."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from waycode.cli.console import say, say_json
from waycode.cli.data import Flag


@dataclass(frozen=True, kw_only=True)
class Swap:
    """Carry a manoeuvre into another scene: encode what a road user of A did, and decode the tokens in B.

    A and B may be the same: then this shows what the tokens keep of the recorded way.
    """

    scene_a: tyro.conf.Positional[str]
    """Where the manoeuvre is from: a Parquet file of scenes, a dataset's folder, or the word `sample`."""
    scene_b: tyro.conf.Positional[str]
    """Where it is decoded."""
    index_a: int = 0
    """Which scene of A."""
    index_b: int = 0
    """Which scene of B."""
    agent_a: str | None = None
    """Id of the road user in A; the ego, or else the first one to predict, if none is named."""
    agent_b: str | None = None
    """Id of the road user in B."""
    model: str = "sumo-small"
    """Name of a bundled model, or folder of a model or of a run."""
    tokens: int | None = None
    """Use the first so many tokens only; all if not given."""
    levels: int = 2
    """Levels per dimension of a token."""
    threads: int = 1
    """Threads to compute with; small models are fastest with one."""
    plot: Path | None = None
    """Draw both scenes: .png, .pdf, .svg or .jpg."""
    json: Flag = False
    """Print the plan in B as JSON."""

    def run(self) -> int:
        from waycode.cli.planning import draw_swap, open_planner, open_scene
        from waycode.cli.planning_tables import plan_table

        planner = open_planner(self.model, threads=self.threads)
        giver = planner.encode(open_scene(self.scene_a, self.index_a), self.agent_a)
        taker = planner.encode(open_scene(self.scene_b, self.index_b), self.agent_b)
        plan = taker.decode(giver.encode_trajectory(levels=self.levels).first(self.tokens))
        if self.plot is not None:
            draw_swap(giver, taker, plan, self.plot)
        if self.json:
            say_json(plan.as_dict())
        else:
            source = f"tokens of {giver.setting.agent_id} in {giver.scene.id}"
            say(plan_table(plan, source))
            if self.plot is not None:
                say(f"{self.plot}: both scenes")
        return 0
