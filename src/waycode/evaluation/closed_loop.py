"""Closed-loop scores of planners: means over scenarios with intervals, as JSON, and a Parquet row per scenario.

Scores and metrics are in percent in reports, and from 0 to 1 in the Parquet file.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float

from waycode.dataset.dataset import Dataset
from waycode.dataset.files import replace_file
from waycode.evaluation.closed_loop_store import ResultStore, result_table, settings_digest
from waycode.evaluation.closed_loop_studies import TRAFFIC_LABELS, StudyName, StudyOptions, build_study
from waycode.evaluation.report import Estimate, EvaluationError, Provenance, Report
from waycode.simulation.campaign import Campaign, ScenarioResult, drive_campaign
from waycode.simulation.registry import TrafficName
from waycode.simulation.scenarios import choose_scenarios


@dataclass(frozen=True, kw_only=True)
class ClosedLoopRow:
    """Scores of one planner in one kind of traffic."""

    planner: str
    traffic: TrafficName
    num_scenarios: int
    num_episodes: int  # that these scenarios are windows of
    cls: Estimate  # closed-loop score
    metrics: dict[str, Estimate]  # `no_at_fault_collision` is S-CR, `progress` is S-PR; of the scenarios with them
    not_judged: dict[str, int]  # metric -> number of scenarios whose map says nothing about it, if any
    num_frozen: int  # scenarios in which the ego stands for 3 s or more with nobody in its way
    planning_ms_median: float  # processor time of a plan; NaN if nothing was planned
    planning_ms_95: float  # 95 % quantile
    failed: dict[str, str]  # scene id -> error message


@dataclass(frozen=True, kw_only=True)
class ScoreDifference:
    """Closed-loop score of a planner less that of a reference, over the same scenarios."""

    planner: str
    reference: str
    traffic: TrafficName
    points: Estimate  # paired: scenarios that are hard for both do not widen the interval


@dataclass(frozen=True, kw_only=True)
class ClosedLoopReport(Report):
    """Scores of several planners or settings over the same scenarios."""

    name: str  # of the evaluation
    num_scenes: int  # that were driven by every planner
    num_episodes: int  # that these scenes are windows of
    left_out: dict[str, int]  # reason -> number of scenes that were not driven
    rows: list[ClosedLoopRow]
    differences: list[ScoreDifference]

    @property
    def file_name(self) -> str:
        return f"{self.name}.json"


ScoredCampaign = tuple[ClosedLoopRow, list[ScenarioResult]]


def closed_loop_report(
    name: StudyName,
    *,
    model: str,
    folder: Path,
    scenes: int | None = None,
    publish: bool = False,
    scores: Path | None = None,
    workers: int = 1,
    options: StudyOptions | None = None,
    on_start: Callable[[int], Callable[[int], None]] = lambda total: lambda count: None,
) -> ClosedLoopReport:
    """Drives a fit scene of each world of a dataset with everything that a study compares.

    Args:
        name: "closed-loop" compares planners, "closed-loop-ablation" and "paper-ablation" settings of our driver and of
            the paper's, "proposals" where trajectories come from and who judges them.
        model: what `--model` takes, for the planners that need one.
        folder: dataset of scenes that the model was not trained on.
        scenes: number of worlds, evenly spread over the dataset; None: all.
        publish: whether the figures are to be published; without it, a dataset of test seeds is refused.
        scores: as for `drive_all`.
        workers: processes.
        options: what to drive; by default everything.
        on_start: called with the total number of runs before the first; what it returns is called with the number of
            runs done since its last call.
    """
    dataset = Dataset(folder)
    provenance = Provenance.of(dataset, model=model, publish=publish)
    chosen = choose_scenarios(dataset, scenes, only_fit=True, one_per_world=True)
    if not chosen.indices:
        raise EvaluationError(f"{folder} has no scenes to drive (left out: {dict(chosen.left_out) or 'none'})")
    study = build_study(name, folder, indices=chosen.indices, model=model, options=options)
    campaigns = study.campaigns
    on_scenarios = on_start(len(campaigns) * len(chosen.indices))
    scored = drive_all(campaigns, scores=scores, workers=workers, on_scenarios=on_scenarios)
    return ClosedLoopReport(
        provenance=provenance,
        name=name,
        num_scenes=len(chosen.indices),
        num_episodes=len({result.episode for _, results in scored for result in results}),
        left_out=dict(chosen.left_out),
        rows=[row for row, _ in scored],
        differences=score_differences(scored, reference=study.reference),
    )


def closed_loop_row(results: Sequence[ScenarioResult], *, planner: str, traffic: TrafficName) -> ClosedLoopRow:
    """Means of all metrics; a failed scenario counts as 0 in each.

    Args:
        results: one or more scenarios.
        planner: name for the row.
        traffic: the traffic that they were driven in.
    """
    if not results:
        raise EvaluationError(f"{planner} has driven no scenarios: expected one or more")
    episodes = np.array([result.episode for result in results])
    planning_ms = 1e3 * np.concatenate([result.planning_s for result in results])
    known = len(planning_ms) > 0
    values = {name: _percent([result.metrics[name] for result in results]) for name in results[0].metrics}
    judged = {name: np.isfinite(each) for name, each in values.items()}
    return ClosedLoopRow(
        planner=planner,
        traffic=traffic,
        num_scenarios=len(results),
        num_episodes=len(np.unique(episodes)),
        cls=Estimate.of(_percent([result.score for result in results]), episodes),
        metrics={
            name: Estimate.of(values[name][there], episodes[there]) for name, there in judged.items() if there.any()
        },
        not_judged={name: int((~there).sum()) for name, there in judged.items() if not there.all()},
        num_frozen=sum(result.frozen_s > 0 for result in results),
        planning_ms_median=float(np.median(planning_ms)) if known else float("nan"),
        planning_ms_95=float(np.quantile(planning_ms, 0.95)) if known else float("nan"),
        failed={result.scene_id: result.failure for result in results if result.failure is not None},
    )


def score_differences(scored: Sequence[ScoredCampaign], *, reference: str) -> list[ScoreDifference]:
    """Differences of every row from the reference's row in the same traffic.

    Args:
        scored: rows with their results, as `drive_all` returns them.
        reference: name of the planner to compare with; traffic without it is skipped.
    """
    by_row = {(row.planner, row.traffic): {one.index: one for one in results} for row, results in scored}
    found = []
    for (planner, traffic), own in by_row.items():
        other = by_row.get((reference, traffic))
        if planner == reference or other is None:
            continue
        both = [index for index in own if index in other]
        own_score, other_score = (_percent([driven[index].score for index in both]) for driven in (own, other))
        points = Estimate.of_difference(own_score, other_score, np.array([own[index].episode for index in both]))
        found.append(ScoreDifference(planner=planner, reference=reference, traffic=traffic, points=points))
    return found


def drive_all(
    campaigns: Mapping[str, Campaign],
    *,
    scores: Path | None = None,
    workers: int = 1,
    on_scenarios: Callable[[int], None] = lambda count: None,
) -> list[ScoredCampaign]:
    """Drives every campaign and returns its row with the results of its scenarios.

    Args:
        campaigns: by name; a row is named like its campaign, without the label of the traffic at the end.
        scores: Parquet file with a row per scenario; None writes nothing. Results are kept beside it until all
            campaigns are finished, so that an interrupted evaluation can resume.
        workers: processes.
        on_scenarios: called with the number of scenarios done since the last call.
    """
    store = None if scores is None else ResultStore(scores.with_suffix(".unfinished"))
    with nullcontext() if store is None else store.until_complete():
        scored = [_drive(name, one, store, workers, on_scenarios) for name, one in campaigns.items()]
        if scores is not None:
            write_scores(scored, scores)
    return scored


def _drive(
    name: str, campaign: Campaign, store: ResultStore | None, workers: int, on_scenarios: Callable[[int], None]
) -> ScoredCampaign:
    """Drives the scenarios that are not in the store yet, and stores each as soon as it is done."""
    digest = "" if store is None else settings_digest(campaign)
    results = [] if store is None else store.load(name, campaign, digest=digest)
    on_scenarios(len(results))
    known = {result.index for result in results}
    rest = replace(campaign, indices=tuple(index for index in campaign.indices if index not in known))
    for result in drive_campaign(rest, workers=workers):
        if store is not None:
            store.save(name, result, digest=digest)
        results.append(result)
        on_scenarios(1)
    results.sort(key=lambda result: result.index)
    planner = name.removesuffix(f" {TRAFFIC_LABELS[campaign.traffic]}")
    return closed_loop_row(results, planner=planner, traffic=campaign.traffic), results


def write_scores(scored: Sequence[ScoredCampaign], path: Path) -> None:
    """Writes a Parquet file with a row per planner, traffic and scenario."""
    tables = []
    for row, results in scored:
        scores = result_table(results)
        for place, (name, value) in enumerate((("planner", row.planner), ("traffic", row.traffic))):
            scores = scores.add_column(place, name, pa.array([value] * len(results), pa.string()))
        tables.append(scores)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, lambda unfinished: pq.write_table(pa.concat_tables(tables), unfinished))


def worst(results: Sequence[ScenarioResult], count: int) -> list[ScenarioResult]:
    """The `count` scenarios with the lowest scores, the lowest first."""
    return sorted(results, key=lambda result: (result.score, result.index))[:count]


def _percent(values: Sequence[float]) -> Float[np.ndarray, " n"]:
    return 100 * np.array(values, np.float64)
