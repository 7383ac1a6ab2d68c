"""How planners drive: means over scenarios with intervals, in percent, as JSON and as Parquet per scenario."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from waycode.dataset.files import replace_file
from waycode.evaluation.closed_loop_parts import Parts, as_table, settings_of
from waycode.evaluation.guidance_report import Estimate
from waycode.evaluation.metrics import bootstrap_interval
from waycode.evaluation.reconstruction import EvaluationError
from waycode.objectives import DRIVING_OBJECTIVE
from waycode.simulation.campaign import Campaign, ScenarioResult, drive_campaign
from waycode.simulation.drivers import LatentConfig, PolicyConfig
from waycode.simulation.registry import DriverSpec, TrafficName

COMPARED: tuple[str, ...] = ("replay", "pdm-closed", "idm", "constant-velocity", "imitation", "latent")
REFERENCE = "pdm-closed"  # what the others are compared with, scenario by scenario
TRAFFIC_LABELS: dict[TrafficName, str] = {"replay": "NR", "idm": "R", "sumo": "R (SUMO)"}

ABLATION_REFERENCE = "depth 3, beam 2, refined"
# The rows of the paper's ablation (section 5.1, table "Ablation study on nuPlan"), as settings.
ABLATIONS: dict[str, LatentConfig] = {
    "depth 1, beam 1": LatentConfig(depth=1, beam_width=1, refine_steps=0),
    "depth 2, beam 1": LatentConfig(depth=2, beam_width=1, refine_steps=0),
    "depth 3, beam 1": LatentConfig(depth=3, beam_width=1, refine_steps=0),
    "depth 3, beam 2": LatentConfig(depth=3, beam_width=2, refine_steps=0),
    ABLATION_REFERENCE: LatentConfig(),
    "... without route": LatentConfig(
        objective=DRIVING_OBJECTIVE.replace("5 * route-progress + ", ""),
        policy=PolicyConfig(keep_bonus=0.02 * 11),  # 2 % of what is left of nuPlan's weights
    ),
    "... without edge": LatentConfig(objective=DRIVING_OBJECTIVE.replace(" + off-road", "")),
    "... without collision": LatentConfig(
        objective=DRIVING_OBJECTIVE.replace("at-fault-collision + ", "").replace(" + 5 * time-to-collision", "")
    ),
}


@dataclass(frozen=True, kw_only=True)
class ClosedLoopRow:
    """One planner in one kind of traffic."""

    planner: str
    traffic: TrafficName
    num_scenarios: int
    cls: Estimate
    metrics: dict[str, Estimate]  # `no_at_fault_collision` is S-CR, `progress` is S-PR
    planning_ms_median: float  # processor time; not a number if nothing was planned
    planning_ms_95: float
    failed: dict[str, str]  # scene id -> why


@dataclass(frozen=True, kw_only=True)
class Difference:
    """By how many points of CLS one row is better than another, over the same scenarios."""

    planner: str
    reference: str
    traffic: TrafficName
    points: Estimate  # pairs are drawn again: what is hard for both does not widen the interval


@dataclass(frozen=True, kw_only=True)
class ClosedLoopReport:
    """Rows to compare."""

    name: str
    data: str
    model: str
    left_out: dict[str, int]
    rows: list[ClosedLoopRow]
    differences: list[Difference]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.json"
        path.write_text(json.dumps(self.as_json(), indent=1) + "\n")
        return path


def closed_loop_row(results: Sequence[ScenarioResult], *, planner: str, traffic: TrafficName) -> ClosedLoopRow:
    """The mean of every metric; a failed scenario counts as 0 in each."""
    if not results:
        raise EvaluationError(f"{planner} has driven no scenarios: expected one or more")
    planning_ms = 1e3 * np.concatenate([result.planning_s for result in results])
    known = len(planning_ms) > 0
    return ClosedLoopRow(
        planner=planner,
        traffic=traffic,
        num_scenarios=len(results),
        cls=_estimate([result.score for result in results]),
        metrics={name: _estimate([result.metrics[name] for result in results]) for name in results[0].metrics},
        planning_ms_median=float(np.median(planning_ms)) if known else float("nan"),
        planning_ms_95=float(np.quantile(planning_ms, 0.95)) if known else float("nan"),
        failed={result.scene_id: result.failure for result in results if result.failure is not None},
    )


Driven = list[tuple[ClosedLoopRow, list[ScenarioResult]]]


def differences(driven: Driven, *, reference: str) -> list[Difference]:
    """Every row beside the reference's in the same traffic."""
    scores = {(row.planner, row.traffic): {one.index: one.score for one in results} for row, results in driven}
    found = []
    for (planner, traffic), own in scores.items():
        other = scores.get((reference, traffic))
        if planner == reference or other is None:
            continue
        points = _estimate([own[index] - other[index] for index in own if index in other])
        found.append(Difference(planner=planner, reference=reference, traffic=traffic, points=points))
    return found


def drive_all(
    campaigns: Mapping[str, Campaign],
    *,
    scores: Path | None = None,
    workers: int = 1,
    on_scenarios: Callable[[int], None] = lambda count: None,
) -> Driven:
    """Every campaign in turn, by the name that its row is to have.

    With `scores`, a row per run is written there in the end, and until then beside it: what a run had driven before it
    was stopped is not driven again.
    """
    if scores is None:
        return _drive_each(campaigns, parts=None, workers=workers, on_scenarios=on_scenarios)
    parts = Parts(scores.with_suffix(".unfinished"))
    with parts.kept_until_done():
        driven = _drive_each(campaigns, parts=parts, workers=workers, on_scenarios=on_scenarios)
        write_scores(driven, scores)
    return driven


def _drive_each(
    campaigns: Mapping[str, Campaign], *, parts: Parts | None, workers: int, on_scenarios: Callable[[int], None]
) -> Driven:
    driven = []
    for name, campaign in campaigns.items():
        results = _drive_rest(name, campaign, parts=parts, workers=workers, on_scenarios=on_scenarios)
        label = name.removesuffix(f" {TRAFFIC_LABELS[campaign.traffic]}")
        driven.append((closed_loop_row(results, planner=label, traffic=campaign.traffic), results))
    return driven


def _drive_rest(
    name: str, campaign: Campaign, *, parts: Parts | None, workers: int, on_scenarios: Callable[[int], None]
) -> list[ScenarioResult]:
    """The campaign's results in the order of the scenes; each is kept as soon as it is there."""
    settings = "" if parts is None else settings_of(campaign)
    results = [] if parts is None else parts.kept(name, campaign, settings=settings)
    on_scenarios(len(results))
    known = {result.index for result in results}
    rest = replace(campaign, indices=tuple(index for index in campaign.indices if index not in known))
    for result in drive_campaign(rest, workers=workers):
        if parts is not None:
            parts.keep(name, result, settings=settings)
        results.append(result)
        on_scenarios(1)
    return sorted(results, key=lambda result: result.index)


def comparison(
    folder: Path, indices: tuple[int, ...], *, model: str, traffics: Sequence[TrafficName] = ("replay", "idm")
) -> dict[str, Campaign]:
    """All planners in non-reactive and in reactive traffic."""
    return {
        f"{planner} {TRAFFIC_LABELS[traffic]}": Campaign(
            folder=folder, indices=indices, planner=DriverSpec(name=planner, model=model), traffic=traffic
        )
        for traffic in traffics
        for planner in COMPARED
    }


def ablation(folder: Path, indices: tuple[int, ...], *, model: str) -> dict[str, Campaign]:
    """Latent search with other settings, in non-reactive traffic."""
    return {
        name: Campaign(folder=folder, indices=indices, planner=DriverSpec(model=model, latent=config))
        for name, config in ABLATIONS.items()
    }


def write_scores(driven: Driven, path: Path) -> None:
    """One row per planner, traffic and scenario."""
    tables = []
    for row, results in driven:
        scores = as_table(results)
        for place, (name, value) in enumerate((("planner", row.planner), ("traffic", row.traffic))):
            scores = scores.add_column(place, name, pa.array([value] * len(results), pa.string()))
        tables.append(scores)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, lambda unfinished: pq.write_table(pa.concat_tables(tables), unfinished))


def worst(results: Sequence[ScenarioResult], count: int) -> list[ScenarioResult]:
    """The scenarios with the least score, the worst first."""
    return sorted(results, key=lambda result: (result.score, result.index))[:count]


def _estimate(values: Sequence[float]) -> Estimate:
    """In percent; scenarios are drawn again."""
    percent = 100 * np.array(values, np.float64)
    low, high = bootstrap_interval(percent, np.zeros(len(percent), np.int64), np.arange(len(percent)))
    return Estimate(mean=float(percent.mean()), low=low, high=high)
