"""`waycode simulate`: drives a planner through scenes in a closed loop and scores it."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from waycode.cli.console import progress, say, say_json
from waycode.cli.data import Flag, UsageError

if TYPE_CHECKING:
    from waycode.simulation.campaign import Campaign, ScenarioResult

SCORES_FILE = "scores.parquet"
STILL_RADIUS_M = 40.0


@dataclass(frozen=True, kw_only=True)
class Simulate:
    """Drive a planner through scenes, step by step, and score it by nuPlan's closed-loop formula.

    The other road users do what they did in the log (replay), react to the ego (idm), or are driven by SUMO (sumo, for
    generated scenes). With --out, scores.parquet has a row per scenario, and the worst are drawn; a run that was
    stopped goes on when it is run again. A planner that fails scores 0 in that scenario, which is named.
    """

    data: Path
    """Dataset of scenes."""
    planner: Literal["latent", "paper", "pdm-closed", "idm", "constant-velocity", "replay", "imitation"] = "latent"
    """Who drives the ego."""
    traffic: Literal["replay", "idm", "sumo"] = "replay"
    """Who drives the others."""
    model: str = "sumo-small"
    """For latent, paper and imitation: folder of a model or of a run, or the name of a bundled model."""
    limit: int | None = None
    """Drive this many scenes, evenly spread over the dataset; all if not given."""
    only_fit: Flag = False
    """Leave out scenes whose ego is no car or speeds in the log by more than 5 %."""
    workers: int = 1
    """Processes; each computes with one thread."""
    horizon_s: float = 15.0
    """How long to drive, or as long as the ego was recorded."""
    out: Path | None = None
    """Folder for the scores and the pictures; if none is given, nothing is written."""
    worst: int = 3
    """Draw this many of the worst scenarios; needs --out."""
    video: Flag = False
    """Draw them as animations (GIF) as well."""
    json: Flag = False
    """Print the scores as JSON."""

    def run(self) -> int:
        self._check()
        from waycode.cli.closed_loop_tables import closed_loop_tables
        from waycode.dataset.dataset import Dataset
        from waycode.evaluation.closed_loop import drive_all
        from waycode.simulation.campaign import Campaign
        from waycode.simulation.registry import DriverSpec, build_traffic
        from waycode.simulation.scenarios import choose_scenarios
        from waycode.training.folders import open_model

        planner = DriverSpec(name=self.planner, model=self.model)
        if planner.has_model:
            open_model(self.model)  # refuses a wrong name once, and not in every scenario
        build_traffic(self.traffic)
        chosen = choose_scenarios(Dataset(self.data), self.limit, only_fit=self.only_fit)
        if not chosen.indices:
            raise UsageError(f"{self.data} has no scenes to drive (left out: {dict(chosen.left_out) or 'none'})")
        campaign = Campaign(
            folder=self.data, indices=chosen.indices, planner=planner, traffic=self.traffic, horizon_s=self.horizon_s
        )
        scores = None if self.out is None else self.out / SCORES_FILE
        with progress("driving", len(chosen.indices)) as advance:
            ((row, results),) = drive_all(
                {self.planner: campaign}, scores=scores, workers=self.workers, on_scenarios=advance
            )
        if self.json:
            say_json(row)
        else:
            say(closed_loop_tables(f"{self.data}: closed loop", [row], left_out=chosen.left_out))
        if self.out is not None:
            files = self._draw(campaign, results, self.out)
            if not self.json:
                say(f"{self.out}: {', '.join([SCORES_FILE, *files])}")
        return 0

    def _check(self) -> None:
        for name, least in (("limit", 1), ("workers", 1), ("worst", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise UsageError(f"--{name} is {value}, expected at least {least}")
        if not self.horizon_s > 0:
            raise UsageError(f"--horizon-s is {self.horizon_s}, expected more than 0")
        if self.video and self.out is None:
            raise UsageError("--video needs a folder to write to: give --out")

    def _draw(self, campaign: "Campaign", results: "list[ScenarioResult]", folder: Path) -> list[str]:
        """Drives the worst scenarios once more (runs repeat) and draws where they lost most; names of the files."""
        from waycode.dataset.dataset import Dataset
        from waycode.evaluation.closed_loop import worst
        from waycode.plotting.animation import save_animation
        from waycode.plotting.scene_picture import save_scene_picture
        from waycode.simulation.campaign import at_its_worst

        dataset, files = Dataset(campaign.folder), []
        for place, result in enumerate(worst(results, self.worst), start=1):
            if len(result.planning_s) == 0:
                continue  # nothing was driven, so there is nothing to see
            driven, step, what = at_its_worst(dataset[result.index], campaign)
            name = f"worst-{place}-scene-{result.index}"
            titled = replace(driven, tags=(*driven.tags, what))
            files.append(save_scene_picture(titled, folder / f"{name}.png", step=step, radius_m=STILL_RADIUS_M).name)
            if self.video:
                path = folder / f"{name}.gif"
                files.append(save_animation(driven, path, first_step=driven.current_step).name)
        return files
