"""How planners drive: means over scenarios with intervals, in percent, as JSON and as Parquet per scenario."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from waycode.evaluation.guidance_report import Estimate
from waycode.evaluation.metrics import bootstrap_interval
from waycode.evaluation.reconstruction import EvaluationError
from waycode.simulation.campaign import Campaign, ScenarioResult, drive_campaign
from waycode.simulation.planners import JudgeConfig, LatentConfig
from waycode.simulation.registry import PlannerSpec, TrafficName

COMPARED: tuple[str, ...] = ("replay", "pdm-closed", "idm", "constant-velocity", "imitation", "latent")
TRAFFIC_LABELS: dict[TrafficName, str] = {"replay": "NR", "idm": "R", "sumo": "R (SUMO)"}

# The rows of the paper's ablation (section 5.1, table "Ablation study on nuPlan"), as settings.
ABLATIONS: dict[str, LatentConfig] = {
    "depth 1, beam 1": LatentConfig(depth=1, beam_width=1, refine_steps=0),
    "depth 2, beam 1": LatentConfig(depth=2, beam_width=1, refine_steps=0),
    "depth 3, beam 1": LatentConfig(depth=3, beam_width=1, refine_steps=0),
    "depth 3, beam 2": LatentConfig(depth=3, beam_width=2, refine_steps=0),
    "depth 3, beam 2, refined": LatentConfig(),
    "... without route": LatentConfig(judge=JudgeConfig(route=False)),
    "... without edge": LatentConfig(judge=JudgeConfig(edge=False)),
    "... without collision": LatentConfig(judge=JudgeConfig(collision=False)),
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
class ClosedLoopReport:
    """Rows to compare."""

    name: str
    data: str
    model: str
    left_out: dict[str, int]
    rows: list[ClosedLoopRow]

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


def drive_all(
    campaigns: Mapping[str, Campaign], *, workers: int = 1, on_scenarios: Callable[[int], None] = lambda count: None
) -> list[tuple[ClosedLoopRow, list[ScenarioResult]]]:
    """Every campaign in turn, by the name that its row is to have."""
    driven = []
    for name, campaign in campaigns.items():
        results = []
        for result in drive_campaign(campaign, workers=workers):
            results.append(result)
            on_scenarios(1)
        results.sort(key=lambda result: result.index)
        label = name.removesuffix(f" {TRAFFIC_LABELS[campaign.traffic]}")
        driven.append((closed_loop_row(results, planner=label, traffic=campaign.traffic), results))
    return driven


def comparison(
    folder: Path, indices: tuple[int, ...], *, model: str, traffics: Sequence[TrafficName] = ("replay", "idm")
) -> dict[str, Campaign]:
    """All planners in non-reactive and in reactive traffic."""
    return {
        f"{planner} {TRAFFIC_LABELS[traffic]}": Campaign(
            folder=folder, indices=indices, planner=PlannerSpec(name=planner, model=model), traffic=traffic
        )
        for traffic in traffics
        for planner in COMPARED
    }


def ablation(folder: Path, indices: tuple[int, ...], *, model: str) -> dict[str, Campaign]:
    """Latent search with other settings, in non-reactive traffic."""
    return {
        name: Campaign(folder=folder, indices=indices, planner=PlannerSpec(model=model, latent=config))
        for name, config in ABLATIONS.items()
    }


def write_scores(results: Sequence[ScenarioResult], path: Path) -> None:
    """One row per scenario."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([_as_row(result) for result in results]), path)


def worst(results: Sequence[ScenarioResult], count: int) -> list[ScenarioResult]:
    """The scenarios with the least score, the worst first."""
    return sorted(results, key=lambda result: (result.score, result.index))[:count]


def _as_row(result: ScenarioResult) -> dict[str, Any]:
    return {
        "index": result.index,
        "scene_id": result.scene_id,
        "tags": list(result.tags),
        "score": result.score,
        **result.metrics,
        "failure": result.failure,
        "reasons": list(result.reasons),
        "planning_ms_median": 1e3 * float(np.median(result.planning_s)) if len(result.planning_s) else None,
    }


def _estimate(values: Sequence[float]) -> Estimate:
    """In percent; scenarios are drawn again."""
    percent = 100 * np.array(values, np.float64)
    low, high = bootstrap_interval(percent, np.zeros(len(percent), np.int64), np.arange(len(percent)))
    return Estimate(mean=float(percent.mean()), low=low, high=high)
