"""`waycode plan`, `swap`, `find`, `objectives` and `demo`: plans and recorded manoeuvres as tokens."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from waycode.cli.console import (
    Count,
    DatasetPath,
    Flag,
    Folder,
    MaybeAgent,
    MaybeCount,
    MaybeFile,
    MaybePicture,
    MaybeSeconds,
    ModelName,
    UsageError,
    check_at_least,
    progress_bar,
    say_result,
)

if TYPE_CHECKING:
    from waycode.planner import ManoeuvreIndex, Planner


@dataclass(frozen=True, kw_only=True)
class PlanCommand:
    """Plan the path of a road user: search its tokens for the trajectory with the least cost.

    An objective is text, such as "left-turn", "lane-change(+1) then comfort", or
    "2 * goal-point(10, 3) + comfort where road-edge"; `waycode objectives` lists all.
    """

    data: tyro.conf.Positional[DatasetPath]
    """Scenes: folder of a dataset, Parquet file of scenes, or `sample` or `sample-crossings` for the bundled ones."""
    objective: Annotated[str, tyro.conf.arg(metavar="TEXT|@FILE")]
    """What to minimise; @FILE reads it from a text file."""
    index: Count = 0
    """Index of the scene in the dataset."""
    agent: MaybeAgent = None
    """Id of the road user; if not given, the ego, else the first one to predict."""
    model: ModelName = "sumo-small"
    """Name of a bundled model (`waycode models` lists them), or folder of a model or of a run."""
    beam_width: Count = 1
    """Number of prefixes that the search keeps; 1 is greedy."""
    depth: MaybeCount = None
    """Number of tokens to search; all that the model has if not given."""
    levels: Count = 2
    """Levels per dimension of a token."""
    no_gate: Flag = False
    """Do not reject plans that the model is uncertain of."""
    refine_steps: Count = 0
    """Steps of gradient descent on the tokens that were found."""
    deadline_s: MaybeSeconds = None
    """Stop the search after so many seconds, with the best plan so far."""
    threads: Count = 1
    """Number of threads; small models are fastest with one."""
    out: MaybePicture = None
    """Draw the search and the plan: .png, .pdf, .svg or .jpg."""
    json: Flag = False
    """Print the plan as JSON."""

    def run(self) -> int:
        from waycode.cli.tables import plan_table
        from waycode.dataset.dataset import load_scene
        from waycode.objectives import parse_objective

        objective = parse_objective(objective_text(self.objective))
        scene = load_scene(self.data, self.index)
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
        texts: list[str] = []
        if self.out is not None:
            from waycode.planner.search_panels import recorded_path_m, search_panels
            from waycode.plotting import save_plan_picture

            save_plan_picture(
                scene, self.out, agent=view.agent, search=search_panels(view, plan, levels=self.levels),
                planned_m=plan.position_in(scene), recorded_m=recorded_path_m(view), title=str(objective),
                note=plan.summary,
            )  # fmt: skip
            texts.append(f"{self.out}: what was tried and found")
        say_result(plan.as_dict(), plan_table(plan, str(objective)), *texts, as_json=self.json)
        return 0


@dataclass(frozen=True, kw_only=True)
class Swap:
    """Transfer a manoeuvre to another scene: encode what a road user of A did, and decode the tokens in B.

    If A and B are the same, this shows what the tokens keep of the recorded path (paper, section 5.2).
    """

    data_a: tyro.conf.Positional[DatasetPath]
    """Dataset A, of the manoeuvre: a folder, a Parquet file of scenes, or `sample`."""
    data_b: tyro.conf.Positional[DatasetPath]
    """Dataset B, with the scene in which it is decoded."""
    index_a: Count = 0
    """Index of the scene in A."""
    index_b: Count = 0
    """Index of the scene in B."""
    agent_a: MaybeAgent = None
    """Id of the road user in A; if not given, the ego, else the first one to predict."""
    agent_b: MaybeAgent = None
    """Id of the road user in B."""
    model: ModelName = "sumo-small"
    """Name of a bundled model (`waycode models` lists them), or folder of a model or of a run."""
    tokens: MaybeCount = None
    """Use only this many tokens, the first ones; all if not given."""
    levels: Count = 2
    """Levels per dimension of a token."""
    threads: Count = 1
    """Number of threads; small models are fastest with one."""
    out: MaybePicture = None
    """Draw both scenes: .png, .pdf, .svg or .jpg."""
    json: Flag = False
    """Print the plan in B as JSON."""

    def run(self) -> int:
        from waycode.cli.tables import plan_table
        from waycode.dataset.dataset import load_scene

        planner = open_planner(self.model, threads=self.threads)
        view_a = planner.encode(load_scene(self.data_a, self.index_a), self.agent_a)
        view_b = planner.encode(load_scene(self.data_b, self.index_b), self.agent_b)
        plan = view_b.decode(view_a.encode_trajectory(levels=self.levels).first(self.tokens))
        texts: list[str] = []
        if self.out is not None:
            from waycode.planner.search_panels import recorded_path_m
            from waycode.plotting import ComparisonPanel, save_comparison_picture

            source = ComparisonPanel(
                scene=view_a.scene, agent=view_a.agent, recorded_m=recorded_path_m(view_a),
                caption="the code is from here", detail=f"tokens {' '.join(map(str, plan.tokens or ()))}",
            )  # fmt: skip
            target = ComparisonPanel(
                scene=view_b.scene, agent=view_b.agent, recorded_m=recorded_path_m(view_b),
                planned_m=plan.position_in(view_b.scene), caption="and decoded here",
                detail=f"final standard deviation {plan.final_std_m:.1f} m",
            )  # fmt: skip
            save_comparison_picture(
                [source, target], self.out, title="the same tokens in another scene", note=plan.summary
            )
            texts.append(f"{self.out}: both scenes")
        title = f"tokens of {view_a.setting.agent_id} in {view_a.scene.id}"
        say_result(plan.as_dict(), plan_table(plan, title), *texts, as_json=self.json)
        return 0


@dataclass(frozen=True, kw_only=True)
class Find:
    """Find road users with the same manoeuvre: codes near that of a road user, or codes that begin with given tokens.

    The encoder makes the codes of all tracks to predict. Searching a saved index takes no time.
    """

    data: tyro.conf.Positional[DatasetPath]
    """Folder of a dataset, Parquet file of scenes, `sample` for the bundled scenes, or a saved index (.parquet)."""
    like: Annotated[str | None, tyro.conf.arg(metavar="SCENE_ID:AGENT")] = None
    """SCENE_ID:AGENT, a road user of the data: list the nearest codes, its own first."""
    prefix: Annotated[str | None, tyro.conf.arg(metavar="TOKEN,TOKEN,...")] = None
    """Tokens, such as 3,5: list all codes that begin with them."""
    count: Count = 10
    """Number of results to list."""
    model: ModelName = "sumo-small"
    """Name of a bundled model, or folder of a model or of a run; not needed for an index."""
    levels: Count = 2
    """Levels per dimension of a token."""
    threads: Count = 1
    """Number of threads; small models are fastest with one."""
    out: MaybeFile = None
    """Write the index to this file (.parquet)."""
    json: Flag = False
    """Print what was found as JSON."""

    def run(self) -> int:
        from waycode.cli.tables import entries_table

        if (self.like is None) == (self.prefix is None):
            raise UsageError("expected one of --like SCENE_ID:AGENT and --prefix 3,5")
        check_at_least(1, count=self.count)
        index = self._index()
        if self.out is not None:
            index.save(self.out)
        if self.prefix is not None:
            found = index.find(prefix=_parse_tokens(self.prefix))
        else:
            scene_id, _, agent_id = (self.like or "").rpartition(":")
            if not scene_id or not agent_id:
                raise UsageError(f"--like is {self.like!r}, expected SCENE_ID:AGENT")
            found = index.nearest(index.latents[index.row_of(scene_id, agent_id)], self.count)
        listed = found[: self.count]
        result = {"num_indexed": len(index), "num_found": len(found), "found": [asdict(entry) for entry in listed]}
        say_result(result, entries_table(listed, num_found=len(found), num_indexed=len(index)), as_json=self.json)
        return 0

    def _index(self) -> "ManoeuvreIndex":
        from waycode.dataset.dataset import Dataset
        from waycode.planner import ManoeuvreIndex, build_index

        if ManoeuvreIndex.is_file(self.data):
            return ManoeuvreIndex.load(self.data)
        dataset, planner = Dataset(self.data), open_planner(self.model, threads=self.threads)
        with progress_bar("encoding", len(dataset)) as advance:
            return build_index(dataset, planner, levels=self.levels, on_scenes=advance)


@dataclass(frozen=True, kw_only=True)
class Objectives:
    """List the objectives, their parameters and how to combine them."""

    json: Flag = False
    """Print the list as JSON."""

    def run(self) -> int:
        from waycode.cli.tables import objectives_tables
        from waycode.objectives import describe_objectives

        described = describe_objectives()
        say_result([asdict(one) for one in described], objectives_tables(described), as_json=self.json)
        return 0


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Plan with several objectives on the bundled scenes and write a page of results; needs no network, no SUMO."""

    out: Folder = Path("waycode-demo")
    """Folder for the pictures and index.html."""
    model: ModelName = "sumo-small"
    """Name of a bundled model, or folder of a model."""
    json: Flag = False
    """Print what was found as JSON."""

    def run(self) -> int:
        import torch

        from waycode.cli.tables import demo_table
        from waycode.demo import NUM_PICTURES, bundled_dataset, run_demo

        torch.set_num_threads(1)  # a plan is too small to share: on a busy machine threads would wait for each other
        with progress_bar("planning and drawing", NUM_PICTURES, unit="pictures") as advance:
            datasets = [bundled_dataset(), bundled_dataset("sumo-crossings")]
            report = run_demo(datasets, self.out, model=self.model, on_picture=lambda: advance(1))
        say_result(report, demo_table(report), f"open {report.page}", as_json=self.json)
        return 0


def open_planner(name_or_folder: str, *, threads: int) -> "Planner":
    """A planner with a bundled model or that of a folder; sets the number of torch's threads."""
    check_at_least(1, threads=threads)
    import torch

    from waycode.planner import Planner

    torch.set_num_threads(threads)
    return Planner.from_pretrained(name_or_folder)


def objective_text(objective: str) -> str:
    """The text itself, or the content of FILE for @FILE."""
    if not objective.startswith("@"):
        return objective
    path = Path(objective[1:])
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read ({error}): expected a text file with an objective") from error


def _parse_tokens(text: str) -> list[int]:
    """Token ids from text such as 3,5."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageError(f"--prefix is {text!r}, expected whole numbers such as 3,5") from error
