"""`waycode simulate`: drives a planner through scenes in a closed loop and scores it."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from waycode.cli.console import (
    Count,
    DatasetPath,
    Flag,
    MaybeCount,
    MaybeFolder,
    ModelName,
    Seconds,
    UsageError,
    check_at_least,
    progress_bar,
    say,
    say_result,
)
from waycode.simulation.names import DriverName, TrafficKind

if TYPE_CHECKING:
    from waycode.simulation.campaign import Campaign, ScenarioResult

_SCORES_FILE = "scores.parquet"
_PICTURE_RADIUS_M = 40.0


@dataclass(frozen=True, kw_only=True)
class Simulate:
    """Drive a planner through scenes, step by step, and score it by nuPlan's closed-loop formula.

    The other road users follow the log (replay), react to the ego (idm), or are driven by SUMO (sumo, for generated
    scenes). With --out, scores.parquet has a row per scenario, drives/ has every drive (`waycode studio` plays them),
    and the worst are drawn; run a stopped command again to continue it. A planner that fails scores 0 in that scenario,
    which is listed.
    """

    data: tyro.conf.Positional[DatasetPath]
    """Scenes: folder of a dataset, Parquet file of scenes, or `sample` or `sample-crossings` for the bundled ones."""
    planner: DriverName = "latent"
    """Driver of the ego."""
    traffic: TrafficKind = "replay"
    """Driver of the other road users."""
    model: ModelName = "sumo-small"
    """For latent, paper and imitation: folder of a model or of a run, or the name of a bundled model."""
    scenes: MaybeCount = None
    """Number of scenes, evenly spread over the dataset; all if not given."""
    only_fit: Flag = False
    """Leave out scenes whose ego is not a car or speeds in the log by more than 5 %."""
    one_per_world: Flag = False
    """Drive one scene of each simulated world alone; --scenes is then the number of worlds."""
    workers: Count = 1
    """Number of processes; each has one thread."""
    publish: Flag = False
    """Allow a dataset of test seeds (9000 and above): the scores are final, and nothing is chosen by them."""
    horizon_s: Seconds = 15.0
    """Seconds to drive, at most as long as the ego was recorded."""
    out: MaybeFolder = None
    """Folder for the scores, the drives and the pictures; nothing is written if not given."""
    worst: Count = 3
    """Number of the worst scenarios to draw; needs --out."""
    video: Literal["none", "gif", "mp4"] = "none"
    """Draw them as animations too; mp4 needs the extra `video`."""
    beside: DriverName | None = None
    """A second driver, to show beside the first in the animations."""
    json: Flag = False
    """Print the scores as JSON."""

    def run(self) -> int:
        check_at_least(1, scenes=self.scenes, workers=self.workers)
        check_at_least(0, worst=self.worst)
        if not self.horizon_s > 0:
            raise UsageError(f"--horizon-s is {self.horizon_s}, expected more than 0")
        if self.video != "none" and self.out is None:
            raise UsageError("--video needs a folder to write to: give --out")
        if self.beside is not None and self.video == "none":
            raise UsageError("--beside shows a second driver in an animation: give --video gif or --video mp4")
        if self.video == "mp4":
            from waycode.plotting.animation import check_can_write_mp4

            check_can_write_mp4()  # before an hour of driving, not after it
        from waycode.cli.tables import closed_loop_tables
        from waycode.dataset.dataset import Dataset
        from waycode.evaluation.closed_loop import drive_all
        from waycode.evaluation.report import Provenance
        from waycode.model.saved import load_model
        from waycode.simulation.campaign import Campaign
        from waycode.simulation.drive_file import DRIVES_FOLDER, drive_path, drive_paths
        from waycode.simulation.registry import DriverSpec, build_traffic
        from waycode.simulation.scenarios import choose_scenarios

        planner = DriverSpec(name=self.planner, model=self.model)
        dataset = Dataset(self.data)
        provenance = Provenance.of(dataset, model=self.model if planner.has_model else "", publish=self.publish)
        if planner.has_model:
            load_model(self.model)  # reports a wrong name once, not in every scenario
        build_traffic(self.traffic)
        chosen = choose_scenarios(dataset, self.scenes, only_fit=self.only_fit, one_per_world=self.one_per_world)
        if not chosen.indices:
            raise UsageError(f"{self.data} has no scenes to drive (left out: {dict(chosen.left_out) or 'none'})")
        if self.traffic == "sumo":
            recorded = next((index for index in chosen.indices if dataset[index].rebuild is None), None)
            if recorded is not None:
                raise UsageError(
                    f"--traffic sumo needs generated scenes, whose world it simulates again; scene {recorded} of "
                    f"{self.data} was recorded: use --traffic replay or idm"
                )
        campaign = Campaign(
            folder=self.data, indices=chosen.indices, planner=planner, traffic=self.traffic, horizon_s=self.horizon_s,
            drives=None if self.out is None else self.out / DRIVES_FOLDER,
        )  # fmt: skip
        scores = None if self.out is None else self.out / _SCORES_FILE
        for path in [] if campaign.drives is None else drive_paths(campaign.drives):
            if path not in {drive_path(path.parent, index) for index in chosen.indices}:
                path.unlink()  # of an earlier run with other scenes: it has no row in the scores
        with progress_bar("driving", len(chosen.indices)) as advance:
            ((row, results),) = drive_all(
                {self.planner: campaign}, scores=scores, workers=self.workers, on_scenarios=advance
            )
        table = closed_loop_tables(f"{self.data}: closed loop", [row], left_out=chosen.left_out)
        say_result({**asdict(provenance), **asdict(row)}, table, as_json=self.json)
        if self.out is not None:
            files = self._draw(campaign, results, self.out)
            if not self.json:
                say(f"{self.out}: {', '.join([_SCORES_FILE, f'{DRIVES_FOLDER}/', *files])}")
                say(f"Watch them: waycode studio {self.out}")
        return 0

    def _draw(self, campaign: "Campaign", results: "list[ScenarioResult]", folder: Path) -> list[str]:
        """Drives the worst scenarios again (runs are deterministic) and draws their worst step; returns file names."""
        from waycode.dataset.dataset import Dataset
        from waycode.evaluation.closed_loop import worst
        from waycode.evaluation.drive_video import drive_to_show
        from waycode.plotting.animation import save_animation
        from waycode.plotting.scene_picture import save_scene_picture
        from waycode.simulation.campaign import drive_scenario, find_costliest_step
        from waycode.simulation.registry import DriverSpec

        dataset, files = Dataset(campaign.folder), []
        chosen = [one for one in worst(results, self.worst) if len(one.planning_s)]
        with progress_bar("drawing", len(chosen)) as advance:
            for place, result in enumerate(chosen, start=1):
                scene, name = dataset[result.index], f"worst-{place}-scene-{result.index}"
                rollout = drive_scenario(scene, campaign, keep_plans=self.video != "none")
                driven, step, what = find_costliest_step(scene, rollout)
                titled = replace(driven, tags=(*driven.tags, what))
                picture = save_scene_picture(titled, folder / f"{name}.png", step=step, radius_m=_PICTURE_RADIUS_M)
                files.append(picture.name)
                if self.video != "none":
                    drives = [drive_to_show(scene, rollout, name=self.planner)]
                    if self.beside is not None:
                        second = replace(campaign, planner=DriverSpec(name=self.beside, model=self.model))
                        other = drive_scenario(scene, second, keep_plans=True)
                        drives.append(drive_to_show(scene, other, name=self.beside))
                    files.append(save_animation(drives, folder / f"{name}.{self.video}").name)
                advance(1)
        return files
