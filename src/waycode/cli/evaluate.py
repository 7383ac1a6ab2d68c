"""`waycode eval`: the tables and figures of the paper for a model."""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import tyro
from rich.console import RenderableType

from waycode.cli.console import (
    Count,
    DatasetPath,
    Flag,
    MaybeCount,
    MaybeFolder,
    ModelName,
    check_at_least,
    progress_bar,
    say_result,
)
from waycode.cli.forecast import evaluate_forecast
from waycode.cli.joint import JOINT_EVALUATIONS, evaluate_joint
from waycode.simulation.names import DriverName, TrafficKind

if TYPE_CHECKING:
    from waycode.dataset.dataset import Dataset
    from waycode.evaluation.closed_loop_studies import StudyName
    from waycode.evaluation.report import Provenance
    from waycode.model import Model


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Evaluate a model with the paper's tables and figures.

    reconstruction: how well 1, 2, ... tokens reconstruct what road users did (table 1: encoder at 2 and 3 levels and
    continuous, greedy search at 2 and 3 levels; with intervals, per type of road user), the encoder's code refined by
    gradient steps, wider search, the orderings that must hold, and how well the predicted spread ranks the errors
    (table A5). Writes reconstruction.json and .png.

    forecast: what the model's prior considers likely, without an objective: errors of 6 forecasts, how the most likely
    one drives, the likelihood of what happened, and its calibration. Writes forecast.json and .png.

    left-turn, lane-change, slow-down: how often search does what the objective asks for, in scenes chosen as in the
    paper, and how realistic the plans are, compared with recordings and with plans without an objective. Each writes a
    .json, a .png and a picture of examples under its name. Left turns are counted at all crossings, then at all-way
    stops, which are the paper's.

    goal, route: the same for ending where the recording ends (ADE and FDE, also refined by 5 and 40 gradient steps),
    and for following the ego's route.

    joint-guidance, depth-sweep, search-vs-optimisation: of a joint model, how near the joint futures that search finds
    for the goals of all agents are to the recording (section 5.4); the same for 1, 2, ... tokens; and compared with
    gradient steps from random codes. joint-consistency: one agent alone has a goal, which moves; whether the others
    follow, and whether they overlap with it. joint-yielding: a pedestrian alone has a goal, beyond the way of a vehicle
    or where it stands; what the vehicle does. Each writes a .json and a .png under its name.

    closed-loop, closed-loop-ablation, paper-ablation, proposals: how well planners drive (see `waycode simulate`): all
    planners compared, in replayed and in reactive traffic; latent search with other depths, beams and objectives; the
    paper's planner in the rows of the paper's ablation; and what the tokens are worth: trajectories of several origins,
    each judged by several objectives, and with parts of the policy left out. Each writes a .json, a .parquet with a row
    per run, and a .png. One scene of each simulated world is driven; scenes whose ego is not a car or speeds in the log
    are left out and counted. With --out, run a stopped command again to continue it.

    Intervals are 95 % bootstrap intervals over episodes: windows of one simulated world are resampled together.
    Datasets of test seeds (9000 and above) are refused without --publish.
    """

    what: tyro.conf.Positional[
        Literal[
            "reconstruction",
            "forecast",
            "left-turn",
            "lane-change",
            "slow-down",
            "goal",
            "route",
            "joint-guidance",
            "joint-consistency",
            "joint-yielding",
            "depth-sweep",
            "search-vs-optimisation",
            "closed-loop",
            "closed-loop-ablation",
            "paper-ablation",
            "proposals",
        ]
    ]
    """Name of the evaluation."""
    data: tyro.conf.Positional[DatasetPath]
    """Scenes that the model was not trained on: folder of a dataset, Parquet file of scenes, or `sample`."""
    model: ModelName = "sumo-small"
    """Name of a bundled model (`waycode models` lists them), or folder of a model or of a run."""
    scenes: MaybeCount = None
    """Number of scenes, evenly spread over the dataset; all if not given."""
    refine: bool = True
    """For reconstruction: add columns for the encoder's code after 5 and 40 gradient steps, which is slow."""
    planners: tuple[DriverName, ...] = ()
    """For closed-loop: planners to compare; all but `paper` if not given."""
    traffic: tuple[TrafficKind, ...] = ("replay", "idm")
    """For closed-loop: how the other road users move; a row of each planner for each."""
    proposals: tuple[str, ...] = ()
    """For proposals: origins of the trajectories; all if not given."""
    judges: tuple[str, ...] = ()
    """For proposals: objectives that choose between them; all if not given."""
    agents: Count = 2
    """For joint models: road users per scene that are planned for together, at most; two in the paper."""
    publish: Flag = False
    """Allow a dataset of test seeds: the figures are final, and nothing is chosen by them."""
    out: MaybeFolder = None
    """Folder for the report and the picture; nothing is written if not given."""
    threads: MaybeCount = None
    """Number of threads; all cores if not given."""
    workers: Count = 1
    """Number of processes, except for reconstruction; with more than one, each has one thread."""
    json: Flag = False
    """Print the report as JSON."""

    def run(self) -> int:
        check_at_least(1, scenes=self.scenes, threads=self.threads, workers=self.workers)
        check_at_least(2, agents=self.agents)
        import torch

        from waycode.dataset.dataset import Dataset
        from waycode.evaluation.report import Provenance
        from waycode.model.saved import load_model
        from waycode.training.config import check_fit

        if self.threads is not None:
            torch.set_num_threads(self.threads)
        dataset = Dataset(self.data)
        provenance = Provenance.of(dataset, model=self.model, publish=self.publish)
        model = load_model(self.model).model
        check_fit(dataset, model.config.features)
        if self.what == "reconstruction":
            result, tables, files = self._reconstruction(model, dataset, provenance)
        elif self.what == "forecast":
            result, tables, files = evaluate_forecast(model, dataset, provenance, scenes=self.scenes, out=self.out)
        elif self.what in JOINT_EVALUATIONS:
            result, tables, files = evaluate_joint(
                self.what, model, dataset, provenance, scenes=self.scenes, agents=self.agents, out=self.out
            )  # fmt: skip
        elif self.what in ("closed-loop", "closed-loop-ablation", "paper-ablation", "proposals"):
            result, tables, files = self._closed_loop(self.what)
        else:
            result, tables, files = self._guidance(model, dataset, provenance)
        written = [] if self.out is None else [f"{self.out}: {', '.join(files)}"]
        say_result(result, tables, *written, as_json=self.json)
        return 0

    # Each evaluation writes its files to --out, if given, and returns its JSON, its tables and the files' names.

    def _reconstruction(
        self, model: "Model", dataset: "Dataset", provenance: "Provenance"
    ) -> tuple[Any, RenderableType, list[str]]:
        from waycode.cli.tables import reconstruction_tables
        from waycode.evaluation.pictures import save_reconstruction
        from waycode.evaluation.reconstruction_report import reconstruction_report
        from waycode.evaluation.report import chosen_indices, evenly_chosen

        with progress_bar("reconstructing", len(chosen_indices(len(dataset), self.scenes))) as advance:
            report = reconstruction_report(
                model, evenly_chosen(dataset, self.scenes), provenance=provenance, refine=self.refine,
                on_scenes=advance,
            )  # fmt: skip
        files = ["reconstruction.json", "reconstruction.png"]
        if self.out is not None:
            report.write(self.out)
            save_reconstruction(report, self.out / files[1])
        return report.as_json(), reconstruction_tables(report), files

    def _guidance(
        self, model: "Model", dataset: "Dataset", provenance: "Provenance"
    ) -> tuple[Any, RenderableType, list[str]]:
        from waycode.cli.tables import guidance_tables
        from waycode.dataset.seeds import episodes_in
        from waycode.evaluation.guidance import TASKS, answer_dataset
        from waycode.evaluation.guidance_report import guidance_report
        from waycode.evaluation.pictures import save_examples, save_guidance
        from waycode.evaluation.report import chosen_indices

        chosen, episodes = chosen_indices(len(dataset), self.scenes), episodes_in(dataset)
        with progress_bar("planning", len(chosen)) as advance:
            answered = answer_dataset(
                TASKS[self.what], model=self.model, folder=self.data, scenes=self.scenes, workers=self.workers,
                on_scenes=advance,
            )  # fmt: skip
        report = guidance_report(
            answered, task=TASKS[self.what], provenance=provenance, num_scenes=len(chosen),
            num_episodes=len({episodes[index] for index in chosen}), num_tokens=model.config.num_tokens,
        )  # fmt: skip
        files = [f"{self.what}.json", f"{self.what}.png", f"{self.what}-examples.png"]
        if self.out is not None:
            report.write(self.out)
            save_guidance(report, self.out / files[1])
            save_examples(report, answered, self.out / files[2], scene_of=dataset.__getitem__)
        return report.as_json(), guidance_tables(report), files

    def _closed_loop(self, what: "StudyName") -> tuple[Any, RenderableType, list[str]]:
        from waycode.cli.tables import closed_loop_tables
        from waycode.evaluation.closed_loop import closed_loop_report
        from waycode.evaluation.closed_loop_studies import ProposalStudy, StudyOptions
        from waycode.evaluation.pictures import save_closed_loop, save_proposals

        given = {"proposals": self.proposals, "judges": self.judges}
        cells = ProposalStudy(**{name: names for name, names in given.items() if names})
        options = StudyOptions(planners=self.planners, traffic=self.traffic, proposals=cells)
        files = [f"{what}.json", f"{what}.parquet", f"{what}.png"]
        with ExitStack() as stack:
            report = closed_loop_report(
                what, model=self.model, folder=self.data, scenes=self.scenes, publish=self.publish,
                workers=self.workers, options=options, scores=None if self.out is None else self.out / files[1],
                on_start=lambda total: stack.enter_context(progress_bar("driving", total, unit="runs")),
            )  # fmt: skip
        if self.out is not None:
            report.write(self.out)
            (save_proposals if what == "proposals" else save_closed_loop)(report, self.out / files[2])
        tables = closed_loop_tables(
            f"{self.data}: closed loop", report.rows, left_out=report.left_out, differences=report.differences
        )
        return report.as_json(), tables, files
