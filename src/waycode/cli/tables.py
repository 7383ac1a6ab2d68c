"""Tables that commands print. Other packages are imported inside functions, so that no command loads all of them."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from waycode.dataset.summary import DatasetSummary
    from waycode.demo import DemoReport
    from waycode.evaluation.ablation import AblationReport
    from waycode.evaluation.closed_loop import ClosedLoopRow, ScoreDifference
    from waycode.evaluation.doctor import ModelDescription
    from waycode.evaluation.familiarity import Detection
    from waycode.evaluation.forecast_report import ForecastReport
    from waycode.evaluation.guidance_report import GuidanceReport
    from waycode.evaluation.joint_report import JointReport
    from waycode.evaluation.reconstruction_report import ReconstructionReport
    from waycode.evaluation.report import Estimate
    from waycode.objectives.registry import ObjectiveDescription, Parameter
    from waycode.planner import Plan, RecordedManoeuvre
    from waycode.planner.scenario import Scenario
    from waycode.training.callbacks import ValidationReport

_GRAMMAR = """a + b, 2 * a    sums and weights
a then b        a first; of those that are equal in it, the best by b
a where b       a, among those that are best by the constraint b
left-turn, goal-point(10, 3), goal-point(x_m=10, y_m=3, frame=agent)
"""
_MAX_FAILURES = 10  # listed per driver
# Headings are short: a terminal has 80 columns.
_GUIDANCE_HEADINGS = {
    "leftward_turn_deg": "turn\ndeg",
    "centre_distance_m": "centre\nm",
    "mean_speed_mps": "mean\nm/s",
    "late_speed_mps": "late\nm/s",
    "final_error_m": "FDE\nm",
    "mean_error_m": "ADE\nm",
    "route_distance_m": "off\nm",
    "progress_ratio": "progr.",
    "edge_contact": "edge",
    "infeasible": "infeas.",
    "collision": "collis.",
    "uncertain": "unsure",
}
_FORECAST_HEADINGS = {
    "min_ade_m": "minADE\nm",
    "min_fde_m": "minFDE\nm",
    "miss": "missed\n%",
    "relative_speed": "speed\n%",
    "collision": "collis.\n%",
}
_CLOSED_LOOP_HEADINGS = {  # without the two metrics that are nearly always 100
    "no_at_fault_collision": "S-CR",
    "progress": "S-PR",
    "drivable_area": "area",
    "time_to_collision": "TTC",
    "speed_limit": "limit",
    "comfort": "comf.",
}
_CLOSED_LOOP_LEGEND = (
    "All in %, ±: half of the 95 % interval over episodes. CLS: closed-loop score by nuPlan's formula, S-CR: without "
    "an at-fault collision, S-PR: progress compared with the recorded ego, area: on the drivable area, TTC: time to "
    "collision above 0.95 s, limit: within the speed limit, comf.: within comfort bounds; frozen: number of scenarios "
    "in which the ego stands for 3 s or more with nobody in its way; ms: processor time of a plan, median and 95 %. "
    "NR: the others replay the log, R: they react."
)


def _table(title: str, *columns: str, caption: str | None = None, text_columns: Collection[int] = ()) -> Table:
    """An empty table; the first column and those in `text_columns` are left-aligned, the latter wrap."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    table.show_header = any(columns)
    table.caption, table.caption_justify = caption, "left"
    for position, column in enumerate(columns):
        is_text = position in text_columns
        # a name that is cut or broken cannot be read: numbers give way first
        table.add_column(
            column, justify="left" if position == 0 or is_text else "right",
            overflow="fold" if is_text else "ellipsis", no_wrap=position == 0 and not is_text,
        )  # fmt: skip
    return table


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _interval(value: "Estimate", *, scale: float = 1.0, digits: int = 1) -> str:
    """The mean, and below it half of the 95 % interval."""
    half = (value.high - value.low) / 2
    return f"{scale * value.mean:.{digits}f}\n±{scale * half:.{digits}f}"


def summary_tables(summary: "DatasetSummary") -> RenderableType:
    """The tables of `waycode data info`; tables without rows are left out."""
    num_scenes = max(summary.num_scenes, 1)
    features = _table("map features", "", "total", "per scene")
    for name, count in summary.map_features.items():
        features.add_row(name, f"{count:,}", f"{count / num_scenes:.1f}")
    settings = _table("settings", "", "", text_columns=(1,))
    for name, value in summary.settings.items():
        settings.add_row(name, json.dumps(value))
    settings.add_row("sha256", summary.settings_sha256)
    tables = [
        _overview(summary),
        _road_users(summary),
        _manoeuvres(summary),
        _scene_counts("tags", summary.tags, num_scenes),
        features,
        _scene_counts("scenes with", summary.scenes_with, num_scenes),
        _scene_counts("rejected", summary.rejected, sum(summary.rejected.values())),
        settings,
    ]
    return Group(*(table for table in tables if table.row_count))


def _overview(summary: "DatasetSummary") -> Table:
    table = _table(summary.folder, "", "")
    mixed = len(summary.steps) > 1
    steps = ", ".join(f"{steps} ({count} scenes)" if mixed else str(steps) for steps, count in summary.steps.items())
    table.add_row("source", summary.source)
    table.add_row("scenes", f"{summary.num_scenes:,}")
    table.add_row("shards", f"{summary.num_shards:,}")
    table.add_row("size", f"{summary.num_bytes / 1e6:,.1f} MB")
    table.add_row("bytes per scene", f"{summary.bytes_per_scene:,.0f}")
    table.add_row("steps", steps)
    table.add_row("seconds per step", ", ".join(f"{dt:g}" for dt in summary.dt_s))
    return table


def _road_users(summary: "DatasetSummary") -> Table:
    caption = "comfort: share within the six bounds, of those that move and are observed long enough"
    columns = ("", "total", "per scene", "moving", "comfort", "to predict", "comfort ")
    table = _table("road users", *columns, caption=caption)
    for kind, counts in summary.road_users.items():
        table.add_row(
            kind, f"{counts.total:,}", f"{counts.per_scene:.1f}", f"{counts.moving:,}",
            _share(counts.comfortable, counts.judged), f"{counts.to_predict:,}",
            _share(counts.comfortable_to_predict, counts.judged_to_predict),
        )  # fmt: skip
    return table


def _manoeuvres(summary: "DatasetSummary") -> Table:
    table = _table("manoeuvres", "", "all tracks", "share", "to predict", "share")
    total, total_to_predict = sum(summary.manoeuvres.values()), sum(summary.predicted_manoeuvres.values())
    for name, count in summary.manoeuvres.items():
        to_predict = summary.predicted_manoeuvres.get(name, 0)
        shares = _share(count, total), _share(to_predict, total_to_predict)
        table.add_row(name, f"{count:,}", shares[0], f"{to_predict:,}", shares[1])
    return table


def _scene_counts(title: str, counts: Mapping[str, int], of: int) -> Table:
    table = _table(title, "", "scenes", "share")
    for name, count in counts.items():
        table.add_row(name, f"{count:,}", _share(count, of))
    return table


def demo_table(report: "DemoReport") -> Table:
    """The results of the demo, a row per objective."""
    table = _table(
        f"demo with {report.model}", "asked for", "successes", "as counted by", "tokens", "plan in ms",
        caption="tokens and time: of the plan in the picture",
    )  # fmt: skip
    for section in report.sections:
        table.add_row(
            section.title, f"{section.num_success} of {section.num_cases}", section.counted_as,
            " ".join(map(str, section.tokens)), f"{section.plan_ms:.0f}",
        )  # fmt: skip
    return table


def detections_table(detections: Sequence["Detection"], *, max_distance: float, max_off_lane: float) -> Table:
    """How many views of some scenes were taken for those of an unknown kind, and the thresholds."""
    limits = f"noticed: embedding distance above {max_distance:.2f}, or above {max_off_lane:.0%} of vehicles on no lane"
    table = _table("scenes of an unknown kind", "scenes", "views", "noticed", "share", caption=limits)
    for one in detections:
        table.add_row(one.scenes, str(one.num_views), str(one.num_noticed), f"{one.share:.1%}")
    return table


def plan_table(plan: "Plan", title: str) -> Table:
    """Status, costs, tokens, end and timings of a plan."""
    table = _table(f"{title}: {plan.agent_id} in {plan.scene_id}", "", "", text_columns=(1,))
    table.add_row("status", str(plan.status))
    if plan.satisfied is not None:
        table.add_row("satisfied", "yes" if plan.satisfied else "no")
    table.add_row("", plan.message)
    for name, cost in plan.costs.items():
        table.add_row(name, f"{cost:.4g}")
    table.add_row("tokens", "refined, no codes" if plan.tokens is None else " ".join(map(str, plan.tokens)))
    if plan.log_probability is not None:
        table.add_row("log probability", f"{plan.log_probability:.2f}")
    end = f"after {plan.time_s[-1]:g} s at x {plan.x_m[-1]:.1f} m, y {plan.y_m[-1]:.1f} m, {plan.speed_mps[-1]:.1f} m/s"
    table.add_row("ends", f"{end}, standard deviation {plan.final_std_m:.2f} m")
    table.add_row("decodes", str(plan.num_decodes))
    table.add_row("took", ", ".join(f"{name} {1000 * seconds:.1f} ms" for name, seconds in plan.timings_s.items()))
    return table


def scenarios_table(scenarios: Sequence["Scenario"]) -> Table:
    """Generated scenarios with what they achieve and what is wrong with them."""
    table = _table("scenarios, best first", "scene", "result", "faults", text_columns=(1, 2))
    for one in scenarios:
        table.add_row(one.scene.id, one.plan.summary, "; ".join(one.faults) or "none")
    return table


def entries_table(found: Sequence["RecordedManoeuvre"], *, num_found: int, num_indexed: int) -> Table:
    """Recorded manoeuvres with the distance of their codes from the requested one."""
    columns = ("scene", "index", "road user", "manoeuvre", "tokens", "distance")
    table = _table(f"{num_found:,} of {num_indexed:,} recorded manoeuvres", *columns)
    for column in table.columns:
        column.overflow = "fold"  # an id that is cut short cannot be used
    for entry in found:
        distance = "" if entry.distance is None else f"{entry.distance:.3f}"
        tokens = " ".join(map(str, entry.tokens))
        table.add_row(entry.scene_id, str(entry.scene_index), entry.agent_id, entry.manoeuvre, tokens, distance)
    return table


def objectives_tables(described: Sequence["ObjectiveDescription"]) -> RenderableType:
    """All objectives with their parameters, and how to combine them."""
    table = _table("objectives", "name", "what it wants", "parameters", "gradient", text_columns=(1, 2))
    for objective in described:
        parameters = "\n".join(map(_parameter, objective.parameters))
        table.add_row(objective.name, objective.summary, parameters, "yes" if objective.differentiable else "no")
    return Group(table, Text(_GRAMMAR))


def models_table(described: Sequence["ModelDescription"]) -> RenderableType:
    """The bundled models."""
    table = _table("bundled models", "name", "parameters", "tokens", "prior", "joint")
    for one in described:
        is_there = ["yes" if part else "no" for part in (one.has_prior, one.is_joint)]
        table.add_row(one.name, f"{one.num_parameters:,}", str(one.num_tokens), *is_there)
    cards = [f"{one.folder}/MODEL_CARD.md" for one in described]
    return Group(table, Text("\n".join(["The cards say what each was trained on:", *cards])))


def _parameter(parameter: "Parameter") -> str:
    unit = parameter.unit
    if parameter.required:
        return parameter.name if unit is None else f"{parameter.name} ({unit})"
    value = parameter.default
    if value is None:
        return f"{parameter.name} = not given"
    shown = f"{value:.4g}" if isinstance(value, float) else str(value)
    return f"{parameter.name} = {shown}" if unit is None else f"{parameter.name} = {shown} {unit}"


def validation_table(report: "ValidationReport", *, samples_per_s: float) -> Table:
    """ADE by number of tokens at one validation of a training run."""
    from waycode.training.card import table_of

    columns = table_of(report.figures)
    title = f"step {report.step:,}: sigma {report.sigma:.3f}, {report.minutes:.1f} min, {samples_per_s:.0f} samples/s"
    table = _table(title, "tokens", *columns)
    for count in range(max((len(column) for column in columns.values()), default=0)):
        table.add_row(str(count + 1), *(f"{column[count]:.3f}" for column in columns.values()))
    return table


def reconstruction_tables(report: "ReconstructionReport") -> RenderableType:
    """The tables of `waycode eval reconstruction`, which orderings hold and which ratios are as small as asked for."""
    from waycode.evaluation.reconstruction_report import ADE_DEFINITIONS, CONTINUOUS, PAPER_ADE_M

    count = f"{report.num_agents:,} road users in {report.num_scenes:,} scenes of {report.num_episodes:,} episodes"
    refined = [name for name in report.table if name not in PAPER_ADE_M]  # a table of their own: a terminal is narrow
    columns = list(PAPER_ADE_M)
    tables = [_ade_table(f"{count}, mean over types: ADE in m", report.table, columns)]
    if refined:
        title = "the encoder's code, refined by gradient steps: ADE in m"
        tables.append(_ade_table(title, report.table, [CONTINUOUS, *refined]))
    tables.append(_ade_table("at 2 Hz, as WOMD's official metrics: ADE in m", report.table_2hz, columns))
    tables += [
        _ade_table(f"{report.agents_by_type[kind]:,} of type {kind}: ADE in m", cells, columns)
        for kind, cells in report.by_type.items()
    ]
    beams = _table("wider search at N_l = 2, all tokens: ADE in m", "beam width", "ADE")
    for width, cell in report.beam_ade_m.items():
        beams.add_row(str(width), _ade(cell))
    risks = _table("most certain first, all tokens: FDE in m", "share", *report.risk_coverage)
    for rows in zip(*report.risk_coverage.values(), strict=True):
        risks.add_row(f"{rows[0][0]:.0%}", *(f"{error:.3f}" for _, error in rows))
    risks.add_row("rises", *("yes" if rises else "NO" for rises in report.risk_is_monotone.values()))
    orderings = []
    for ordering in report.orderings:
        orderings.append(Text(f"{'holds' if ordering.holds else 'FAILS'}  {ordering.claim}"))
        orderings += [Text(f"       {place}") for place in ordering.breaks]
    ratios = _table("ratios of ADEs of the same road users", "", "ratio", "95 %, paired", "at most", "")
    for one in report.comparisons:
        interval, state = f"{one.low:.3f} to {one.high:.3f}", "holds" if one.met else "FAILS"
        ratios.add_row(one.name, f"{one.estimate:.3f}", interval, f"{one.target:g}", state)
    notes = Text(
        f"ADE: {ADE_DEFINITIONS['ade_m']}\nADE at 2 Hz: {ADE_DEFINITIONS['ade_2hz_m']}\n"
        "±: half of the 95 % interval over episodes\n"
    )
    return Group(*tables, notes, beams, risks, ratios, *orderings)


def _ade_table(title: str, cells: "Mapping[str, Sequence[Estimate]]", columns: Sequence[str]) -> Table:
    table = _table(title, "tokens", *(name.replace(" ", "\n", 1) for name in columns))
    for count, row in enumerate(zip(*(cells[name] for name in columns), strict=True), start=1):
        table.add_row(str(count), *map(_ade, row))
    return table


def _ade(cell: "Estimate") -> str:
    return f"{cell.mean:.3f} ±{(cell.high - cell.low) / 2:.2f}"


def forecast_tables(report: "ForecastReport") -> RenderableType:
    """Errors and driving of forecasts by method, and how likely the recorded tokens were."""
    title = f"{report.num_agents:,} road users in {report.num_scenes:,} scenes, mean over types"
    driving = f"speed and collisions: first forecast of {report.num_driving:,} vehicles; speed: share of the recorded"
    table = _table(
        title,
        "",
        *_FORECAST_HEADINGS.values(),
        caption=f"nearest of up to 6 forecasts; ±: half of the 95 % interval; {driving}",
    )
    for method, measures in report.rows.items():
        cells = [
            (_interval(measures[name], digits=2) if name.endswith("_m") else _interval(measures[name], scale=100.0))
            if name in measures
            else "-"
            for name in _FORECAST_HEADINGS
        ]
        table.add_row(method, *cells)
    tokens = _table("minus log probability", "recorded token", "nats")
    for place, value in enumerate(report.nll_nats, start=1):
        tokens.add_row(str(place), _ade(value))
    tokens.add_row("mean", _ade(report.nll_nats_per_token))
    tokens.add_row("all equally likely", f"{report.uniform_nats_per_token:.3f}")
    calibration = [
        Text(f"expected calibration error, {name}: {curve.expected_calibration_error:.4f}")
        for name, curve in report.reliability.items()
    ]
    return Group(table, tokens, *calibration)


def guidance_tables(report: "GuidanceReport") -> RenderableType:
    """A table per part of the report, and which of the expected figures hold."""
    from waycode.evaluation.guidance import SUCCESS, UNCERTAIN
    from waycode.evaluation.realism import REALISM_MEASURES

    shares = (SUCCESS, *REALISM_MEASURES, UNCERTAIN)  # printed as percentages
    tables = []
    for part, rows in report.rows.items():
        names = list(next(iter(rows.values())))
        scenes = f"{report.scenes_with_cases[part]:,} of {report.num_scenes:,} scenes"
        scenes += f" ({report.episodes_with_cases[part]:,} of {report.num_episodes:,} episodes)"
        headings = [_GUIDANCE_HEADINGS.get(name, name.replace("_", "\n")) for name in names]
        table = _table(f"{part}: {report.num_cases[part]:,} cases in {scenes}", "", *headings)
        for method, measures in rows.items():
            cells = (
                _interval(measures[name], scale=100.0) if name in shares else _interval(measures[name], digits=2)
                for name in names
            )
            table.add_row(method, *cells)
        tables.append(table)
    targets = [Text(f"{'holds' if one.holds else 'FAILS'}  {one.claim}: {one.found}") for one in report.targets]
    empty = [Text(f"{part}: no cases") for part, count in report.num_cases.items() if count == 0]
    return Group(*tables, Text("±: half of the 95 % interval over episodes; shares in %\n"), *empty, *targets)


def joint_table(report: "JointReport") -> RenderableType:
    """Errors of guided joint futures by method."""
    names = list(next(reversed(report.rows.values())))
    title = f"{report.num_agents:,} road users in {report.num_scenes:,} scenes ({report.num_episodes:,} episodes)"
    caption = "min: best of 6 of a beam of 64, mean: greedy search; ±: half of the 95 % interval over episodes"
    if report.name == "joint-consistency":
        caption = (
            "guided: the agent with a goal; overlap recorded: if the others kept their recording; ±: half of the 95 %"
        )
    if report.name == "joint-yielding":
        caption = "guided: the pedestrian; overlap otherwise: if the vehicle did what it does for the other goal"
    table = _table(title, "", *(name.replace("_", " ") for name in names), caption=caption)
    for method, measures in report.rows.items():
        cells = [_interval(measures[name], digits=3) if name in measures else "-" for name in names]
        table.add_row(method, *cells)
    return table


def closed_loop_tables(
    title: str,
    rows: Sequence["ClosedLoopRow"],
    *,
    left_out: Mapping[str, int],
    differences: Sequence["ScoreDifference"] = (),
) -> RenderableType:
    """Scores of drivers in the closed loop.

    Args:
        title: Title of the table of scores.
        rows: Scores of a driver in a kind of traffic each.
        left_out: Number of scenes that were not driven, by reason.
        differences: Paired differences to a reference driver, printed in a second table.
    """
    from waycode.evaluation.closed_loop_studies import TRAFFIC_LABELS

    counts = " to ".join(map(str, sorted({row.num_scenarios for row in rows})))
    episodes = " to ".join(map(str, sorted({row.num_episodes for row in rows})))
    scores = _table(
        f"{title}, {counts} scenarios of {episodes} episodes", "planner", "CLS", *_CLOSED_LOOP_HEADINGS.values(),
        "frozen", "ms", caption=_CLOSED_LOOP_LEGEND,
    )  # fmt: skip
    scores.padding = (0, 0, 0, 1)  # ten columns fit 80 characters
    for row in rows:
        scores.add_row(
            f"{row.planner}\n{TRAFFIC_LABELS[row.traffic]}", _interval(row.cls),
            *(_interval(row.metrics[name]) if name in row.metrics else "-" for name in _CLOSED_LOOP_HEADINGS),
            str(row.num_frozen), f"{row.planning_ms_median:.0f}\n{row.planning_ms_95:.0f}",
        )  # fmt: skip
    parts: list[RenderableType] = [scores]
    if differences:
        (reference,) = {one.reference for one in differences}
        paired = _table(f"CLS less that of {reference}, scenario by scenario", "planner, traffic", "points", "95 %")
        for one in differences:
            points, name = one.points, f"{one.planner}, {TRAFFIC_LABELS[one.traffic]}"
            paired.add_row(name, f"{points.mean:+.1f}", f"{points.low:+.1f} to {points.high:+.1f}")
        parts.append(paired)
    parts += [Text(f"left out: {count} scenes ({reason})") for reason, count in left_out.items()]
    unknown = {name: count for row in rows for name, count in row.not_judged.items()}
    parts += [Text(f"not judged, for want of data: {name} in {count} scenarios") for name, count in unknown.items()]
    for row in rows:
        if row.failed:
            parts.append(Text(f"{row.planner} failed in {len(row.failed)} of {row.num_scenarios} scenarios:"))
            parts += [Text(f"  {scene}: {why}") for scene, why in list(row.failed.items())[:_MAX_FAILURES]]
            if len(row.failed) > _MAX_FAILURES:
                parts.append(Text(f"  and {len(row.failed) - _MAX_FAILURES} more"))
    return Group(*parts)


def ablation_table(report: "AblationReport") -> RenderableType:
    """A row per measure, a column per variant: shares in %, errors in m, each with half of its interval."""
    table = _table(f"ablation, {report.steps:,} steps each", "", *report.rows)
    for name in dict.fromkeys(name for measures in report.rows.values() for name in measures):
        is_share = name.endswith(("success", "edge_contact"))
        scale, digits = (100.0, 1) if is_share else (1.0, 3)
        cells = [
            _interval(measures[name], scale=scale, digits=digits) if name in measures else "-"
            for measures in report.rows.values()
        ]
        table.add_row(f"{name} {'%' if is_share else 'm'}", *cells)
    return table
