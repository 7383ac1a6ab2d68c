"""Charts of reports, and pictures of examples of guided planning."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from waycode.evaluation import consistency, joint, yielding
from waycode.evaluation.closed_loop import ClosedLoopReport
from waycode.evaluation.closed_loop_studies import TRAFFIC_LABELS, cell_of
from waycode.evaluation.forecast import MIN_ADE, MIN_FDE, NUM_FORECASTS
from waycode.evaluation.forecast_report import ForecastReport
from waycode.evaluation.guidance import BEAM, DECODED, RECORDED, SUCCESS, UNGUIDED, AnsweredCase, greedy
from waycode.evaluation.guidance_report import GuidanceReport, Rows
from waycode.evaluation.joint_report import JointReport
from waycode.evaluation.realism import REALISM_MEASURES
from waycode.evaluation.reconstruction_report import (
    CONTINUOUS,
    ENCODER_2,
    ENCODER_3,
    GREEDY_2,
    GREEDY_3,
    PAPER_ADE_M,
    REFINED_5,
    REFINED_40,
    ReconstructionReport,
)
from waycode.evaluation.report import Estimate
from waycode.evaluation.selection import Group
from waycode.evaluation.yielding import Yielding
from waycode.plotting import ComparisonPanel, save_comparison_picture
from waycode.plotting.charts import finish_chart
from waycode.plotting.scene_picture import write_figure
from waycode.plotting.style import Style
from waycode.scene import Scene

_STYLE = Style()
_DOTS_PER_INCH = 150
_MAX_EXAMPLES = 8  # successes and failures together, the same number of each group
_PART_COLOURS = (_STYLE.chosen, _STYLE.candidate, _STYLE.ego, _STYLE.original)
_GROUP_COLOURS = (*_PART_COLOURS, _STYLE.faint_ink)
_SHORT_NAMES = {  # fit above a panel
    Group.AVAILABLE: "turn available",
    Group.FROM_NO_LANE: "no left turn",
    Group.FROM_ANOTHER_LANE: "from another lane",
    Group.ZERO: "no change",
    Group.ONE: "one change",
    Group.STEADY: "slow down",
    Group.GOAL: "goal",
    Group.ROUTE: "route",
}
_METHOD_LOOKS = {  # colour: encoder, search or refined; line: number of levels or of steps
    ENCODER_2: (_STYLE.faint_ink, "-", "o"),
    ENCODER_3: (_STYLE.faint_ink, "--", "s"),
    CONTINUOUS: (_STYLE.ink, ":", "D"),
    REFINED_5: (_STYLE.chosen, "--", "s"),
    REFINED_40: (_STYLE.chosen, "-", "o"),
    GREEDY_2: (_STYLE.ego, "-", "o"),
    GREEDY_3: (_STYLE.ego, "--", "s"),
}
# Legends below the axes: inside, they would cover data.
_BELOW_LEFT: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (-0.02, -0.13), "ncols": 2}
_BELOW_CENTRE: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.17), "ncols": 2}


def save_reconstruction(report: ReconstructionReport, path: Path) -> None:
    """Draws three panels: ADE by tokens, ADE by beam width, FDE by coverage."""
    figure = Figure(figsize=(13, 4.8), facecolor=_STYLE.paper, layout="constrained")
    by_tokens, by_beam, by_coverage = figure.subplots(1, 3, width_ratios=[1.25, 1, 1])
    _draw_tokens(by_tokens, report)
    _draw_beams(by_beam, report)
    for name, pairs in report.risk_coverage.items():
        colour, line, marker = _METHOD_LOOKS[name]
        by_coverage.plot(
            [100 * share for share, _ in pairs], [error for _, error in pairs], color=colour, linestyle=line,
            marker=marker, markersize=4.5, linewidth=1.6, label=_math(name),
        )  # fmt: skip
    by_coverage.set_xlim(0, 104)
    title = "Most certain predictions first"
    _finish(by_coverage, title, "share of road users in %", "their FDE in m", **_BELOW_CENTRE)
    count = f"{report.num_agents:,} road users in {report.num_scenes:,} scenes"
    _save(figure, f"{report.provenance.model}: {count} of {report.provenance.data}", path)


def save_guidance(report: GuidanceReport, path: Path) -> None:
    """Draws a panel of success by number of tokens, and a panel of realism per part of the table without splits."""
    parts, num_tokens = [name for name in report.rows if name not in report.splits], report.num_tokens
    figure = Figure(figsize=(4.6 + 4.2 * len(parts), 5.2), facecolor=_STYLE.paper, layout="constrained")
    first, *others = figure.subplots(1, 1 + len(parts), squeeze=False)[0]
    for part, colour in zip(parts, _PART_COLOURS[: len(parts)], strict=True):
        rows = report.rows[part]
        line = [rows[UNGUIDED][SUCCESS], *(rows[greedy(depth)][SUCCESS] for depth in range(1, num_tokens + 1))]
        _draw_estimates(first, np.arange(len(line)), line, scale=100.0, color=colour, label=part, linestyle="-")
        _draw_estimates(first, np.array([num_tokens + 2]), [rows[BEAM][SUCCESS]], scale=100.0, color=colour)
        first.axhline(100 * rows[RECORDED][SUCCESS].mean, color=colour, linestyle=":", linewidth=1.2)
    first.set_xticks(range(num_tokens + 3), ["none", *map(str, range(1, num_tokens + 1)), "", BEAM])
    legend = {**_BELOW_LEFT, "ncols": 1}  # names of parts are long
    _finish(first, "Success", "tokens of greedy search", "% of cases (bars: 95 %)", **legend)
    for axes, part in zip(others, parts, strict=True):
        _draw_realism(axes, report.rows[part], num_tokens=num_tokens)
        title = f"{part} ({report.num_cases[part]:,} cases)"
        _finish(axes, title, "", "% of cases (bars: 95 %)", **_BELOW_LEFT)
    model, data = report.provenance.model, report.provenance.data
    _save(figure, f"{report.task}: {model} on {report.num_scenes:,} scenes of {data}", path)


def save_closed_loop(report: ClosedLoopReport, path: Path) -> None:
    """Draws score, collisions and progress of all rows, a panel per kind of traffic."""
    traffics = list(dict.fromkeys(row.traffic for row in report.rows))
    widest = max(sum(row.traffic == traffic for row in report.rows) for traffic in traffics)
    figure = Figure(figsize=(1.5 + 0.85 * widest * len(traffics), 4.8), facecolor=_STYLE.paper, layout="constrained")
    for axes, traffic in zip(figure.subplots(1, len(traffics), squeeze=False)[0], traffics, strict=True):
        rows = [row for row in report.rows if row.traffic == traffic]
        for shift, label, colour, values in (
            (-0.2, "CLS: score", _STYLE.chosen, [row.cls for row in rows]),
            (0.0, "S-CR: no at-fault collision", _STYLE.ego, [row.metrics["no_at_fault_collision"] for row in rows]),
            (0.2, "S-PR: progress", _STYLE.original, [row.metrics["progress"] for row in rows]),
        ):
            _draw_estimates(axes, np.arange(len(rows)) + shift, values, color=colour, label=label)
        axes.set_xticks(range(len(rows)), [row.planner for row in rows], rotation=30, ha="right")
        title = f"{TRAFFIC_LABELS[traffic]} ({rows[0].num_scenarios:,} scenarios)"
        _finish(axes, title, "", "% (bars: 95 %)", loc="lower right")
        axes.set_ylim(0, 104)
    _save(figure, f"{report.name}: {report.provenance.model} on {report.provenance.data}", path)


def save_proposals(report: ClosedLoopReport, path: Path) -> None:
    """Draws scores by proposals and judge, and, if parts of the policy were left out, by proposals and policy."""
    cells = {cell_of(row.planner): row.cls for row in report.rows}
    whole = next(iter(cells))[2]
    varied = {proposals for proposals, _, policy in cells if policy != whole}
    panels = [("Proposals by judge", 1, [cell for cell in cells if cell[2] == whole])]
    if varied:
        less = [cell for cell in cells if cell[1] == "driving" and cell[0] in varied]
        panels.append(("With less of the policy, driving objective", 2, less))
    figure = Figure(figsize=(1 + 6 * len(panels), 5.2), facecolor=_STYLE.paper, layout="constrained")
    for axes, (title, by, shown) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        proposals, groups = (list(dict.fromkeys(cell[place] for cell in shown)) for place in (0, by))
        for number, group in enumerate(groups):
            own = [cell for cell in shown if cell[by] == group]
            place = np.array([proposals.index(cell[0]) for cell in own]) + (number - (len(groups) - 1) / 2) * 0.13
            colour = _GROUP_COLOURS[number % len(_GROUP_COLOURS)]
            _draw_estimates(axes, place, [cells[cell] for cell in own], color=colour, label=group)
        axes.set_xticks(range(len(proposals)), proposals, rotation=25, ha="right")
        _finish(axes, f"{title} ({report.num_scenes} scenarios, NR)", "", "CLS in % (bars: 95 %)", **_BELOW_CENTRE)
        axes.set_ylim(0, 104)
    _save(figure, f"{report.name}: {report.provenance.model} on {report.provenance.data}", path)


def save_forecast(report: ForecastReport, path: Path) -> None:
    """Draws three panels: errors by method, the likelihood of recorded tokens, and their reliability diagram."""
    figure = Figure(figsize=(13, 4.8), facecolor=_STYLE.paper, layout="constrained")
    errors, likelihood, calibration = figure.subplots(1, 3, width_ratios=[1.25, 0.8, 1])
    methods = [method for method in report.rows if method != RECORDED]
    for shift, name, label, colour in ((-0.1, MIN_ADE, "minADE", _STYLE.ego), (0.1, MIN_FDE, "minFDE", _STYLE.chosen)):
        values = [report.rows[method][name] for method in methods]
        _draw_estimates(errors, np.arange(len(methods)) + shift, values, color=colour, label=label)
    errors.set_xticks(range(len(methods)), [method.replace(" ", "\n") for method in methods])
    _finish(errors, f"Nearest of up to {NUM_FORECASTS} forecasts", "", "m (bars: 95 %)", **_BELOW_CENTRE)
    places = np.arange(len(report.nll_nats)) + 1
    _draw_estimates(likelihood, places, report.nll_nats, color=_STYLE.ego, label="prior")
    uniform = report.uniform_nats_per_token
    likelihood.axhline(uniform, color=_STYLE.faint_ink, linestyle=":", linewidth=1.4, label="all equally likely")
    likelihood.set_xticks(places)
    _finish(likelihood, "Recorded tokens", "token", "minus log probability in nats", **_BELOW_CENTRE)
    calibration.plot([0, 1], [0, 1], color=_STYLE.faint_ink, linestyle=":", linewidth=1.4)
    for (name, curve), colour in zip(report.reliability.items(), (_STYLE.ego, _STYLE.chosen), strict=True):
        calibration.plot(
            [one.predicted for one in curve.bins], [one.observed for one in curve.bins], color=colour, marker="o",
            markersize=4.5, linewidth=1.6, label=f"{name} (error {curve.expected_calibration_error:.3f})",
        )  # fmt: skip
    calibration.set_xlim(0, 1)
    _finish(
        calibration, "Reliability", "predicted probability", "share that happened", **(_BELOW_CENTRE | {"ncols": 1})
    )
    calibration.set_ylim(0, 1)
    count = f"{report.num_agents:,} road users in {report.num_scenes:,} scenes"
    _save(figure, f"{report.provenance.model}: {count} of {report.provenance.data}", path)


def save_joint(report: JointReport, path: Path) -> None:
    """Draws two panels over the methods or the number of tokens: realism, and what was asked for."""
    figure = Figure(figsize=(12, 4.8), facecolor=_STYLE.paper, layout="constrained")
    methods = [method for method in report.rows if method != RECORDED]
    single, several = "one, by greedy search", "best of 6 of a beam of 64"
    panels: tuple[tuple[str, dict[str, str]], ...] = (
        ("Realism: mean distance from the recording", {joint.MEAN_ADE: single, joint.MIN_ADE: several}),
        ("Objective: distance from the goals at the end", {joint.MEAN_FDE: single, joint.MIN_FDE: several}),
    )
    if report.name == "joint-consistency":
        moved = {
            consistency.OTHERS_MOVED: "from their way with the recorded goal",
            consistency.GUIDED_FDE: "goal missed",
        }
        hits = {joint.OVERLAP: "as planned together", consistency.OVERLAP_RECORDED: "had they kept their recording"}
        panels = (("Distances in m", moved), ("Share of scenes with an overlap", hits))
    if report.name == "joint-yielding":
        driven = {
            yielding.VEHICLE_DRIVES: "the vehicle drives",
            consistency.GUIDED_FDE: "the pedestrian misses the goal by",
        }
        hits = {
            joint.OVERLAP: "as planned together",
            yielding.OVERLAP_OTHERWISE: "had the vehicle done the other thing",
        }
        panels = (("Distances in m", driven), ("Share of scenes with an overlap", hits))
    for axes, (title, names) in zip(figure.subplots(1, 2), panels, strict=True):
        looks = zip(names.items(), (-0.08, 0.08), (_STYLE.chosen, _STYLE.ego), strict=True)
        for (name, label), shift, colour in looks:
            if all(name in report.rows[method] for method in methods):
                values = [report.rows[method][name] for method in methods]
                _draw_estimates(axes, np.arange(len(methods)) + shift, values, color=colour, label=label)
        labels = [method.removesuffix(" tokens").removesuffix(" token") for method in methods]
        axes.set_xticks(range(len(methods)), [label.replace(" from ", "\nfrom ") for label in labels])
        along = "tokens" if labels != methods else ""
        _finish(axes, title, along, "bars: 95 %", **_BELOW_CENTRE)
    count = f"{report.num_agents:,} road users in {report.num_scenes:,} scenes"
    _save(figure, f"{report.provenance.model}: {report.name}, {count} of {report.provenance.data}", path)


def save_yielding(case: Yielding, path: Path) -> None:
    """Draws the joint futures of a pedestrian and a vehicle for both goals of the pedestrian, a panel for each."""
    walker, vehicle = case.agents
    panels = [
        ComparisonPanel(
            scene=case.scene,
            agent=vehicle,
            planned_m=case.path_m(goal, 1),
            companion=(walker, case.path_m(goal, 0)),
            caption=caption,
            detail=detail,
        )
        for goal, caption, detail in (
            (yielding.CROSSES, "they cross", "the pedestrian's goal is across the road"),
            (yielding.STAYS, "they stay", "its goal is where it stands"),
        )
    ]
    save_comparison_picture(panels, path, title="Two goals of a pedestrian, nothing asked of the vehicle")


def save_examples(
    report: GuidanceReport, answered: Sequence[AnsweredCase], path: Path, *, scene_of: Callable[[int], Scene]
) -> None:
    """Draws the first cases that greedy search with all tokens solves, and the first that it does not.

    Args:
        report: the report on the cases.
        answered: the cases.
        path: of the picture.
        scene_of: returns a scene by its number.
    """
    method = greedy(report.num_tokens)
    panels = []
    for one in chosen_examples(answered, method):
        scene, found = scene_of(one.scene_number), one.answer(method)
        faults = [name.replace("_", " ") for name in REALISM_MEASURES if found.measures[name]]
        panels.append(
            ComparisonPanel(
                scene=scene,
                agent=one.case.agent,
                planned_m=found.future_m,
                recorded_m=one.answer(RECORDED).future_m,
                caption=f"{_SHORT_NAMES[one.case.group]}: {'done' if found.measures[SUCCESS] else 'not done'}",
                detail=", ".join([scene.tags[0] if scene.tags else scene.source, *faults]),
            )
        )
    save_comparison_picture(panels, path, title=f"{report.task}: {method}")


def chosen_examples(answered: Sequence[AnsweredCase], method: str) -> list[AnsweredCase]:
    """The first successes and failures of a method in each group, from different scenes."""
    chosen: dict[tuple[str, bool], list[AnsweredCase]] = {}
    limit = max(1, _MAX_EXAMPLES // (2 * len({one.case.group for one in answered})))
    for one in answered:
        kind = chosen.setdefault((one.case.group, bool(one.answer(method).measures[SUCCESS])), [])
        if len(kind) < limit and one.scene_number not in {other.scene_number for other in kind}:
            kind.append(one)
    return [one for _, kind in sorted(chosen.items(), key=lambda item: (item[0][0], not item[0][1])) for one in kind]


def _draw_tokens(axes: Axes, report: ReconstructionReport) -> None:
    shifts = [(number - (len(report.table) - 1) / 2) * 0.05 for number in range(len(report.table))]  # bars side by side
    for shift, (name, values) in zip(shifts, report.table.items(), strict=True):
        colour, line, marker = _METHOD_LOOKS[name]
        place = np.arange(len(values)) + 1 + shift
        _draw_estimates(axes, place, values, color=colour, linestyle=line, marker=marker, label=_math(name))
    paper = PAPER_ADE_M[GREEDY_2]
    if len(paper) == len(report.table[GREEDY_2]):
        axes.plot(
            [1, 2, 3], paper, linestyle="none", marker="_", markersize=16, color=_STYLE.future,
            label="paper, greedy $N_l$ = 2, WOMD",
        )  # fmt: skip
    axes.set_xticks([count + 1 for count in range(len(report.table[GREEDY_2]))])
    _finish(axes, "Reconstruction", "tokens", "ADE in m (bars: 95 %)", **_BELOW_CENTRE)


def _draw_beams(axes: Axes, report: ReconstructionReport) -> None:
    widths, values = list(report.beam_ade_m), list(report.beam_ade_m.values())
    places = range(len(widths))
    low, high = [value.low for value in values], [value.high for value in values]
    axes.fill_between(places, low, high, color=_STYLE.ego, alpha=0.13, lw=0)
    axes.plot(
        places, [value.mean for value in values], color=_STYLE.ego, marker="o", markersize=4.5, linewidth=1.6,
        label="beam search $N_l$ = 2",
    )  # fmt: skip
    for name, line in ((ENCODER_2, "-"), (CONTINUOUS, ":")):
        colour = _METHOD_LOOKS[name][0]
        axes.axhline(report.table[name][-1].mean, color=colour, linestyle=line, linewidth=1.4, label=_math(name))
    axes.set_xticks(list(places), [str(width) for width in widths])
    _finish(axes, f"Wider search, {len(report.table[GREEDY_2])} tokens", "beam width", "ADE in m", **_BELOW_CENTRE)


def _draw_realism(axes: Axes, rows: Rows, *, num_tokens: int) -> None:
    looks = {
        RECORDED: _STYLE.original,
        DECODED: _STYLE.ink,
        UNGUIDED: _STYLE.faint_ink,
        greedy(num_tokens): _STYLE.chosen,
        BEAM: _STYLE.ego,
    }
    for number, (method, colour) in enumerate(looks.items()):
        place = np.arange(len(REALISM_MEASURES)) + (number - (len(looks) - 1) / 2) * 0.15
        values = [rows[method][name] for name in REALISM_MEASURES]
        _draw_estimates(axes, place, values, scale=100.0, color=colour, label=method)
    axes.set_xticks(range(len(REALISM_MEASURES)), [name.replace("_", " ") for name in REALISM_MEASURES])


def _draw_estimates(
    axes: Axes,
    place: np.ndarray,
    values: Sequence[Estimate],
    *,
    color: str,
    scale: float = 1.0,
    label: str | None = None,
    linestyle: str = "none",
    marker: str = "o",
) -> None:
    """Draws means with their intervals as error bars, all multiplied by `scale`."""
    mean, low, high = (scale * np.array([getattr(value, name) for value in values]) for name in ("mean", "low", "high"))
    axes.errorbar(
        place, mean, yerr=np.maximum([mean - low, high - mean], 0), color=color, label=label, linestyle=linestyle,
        marker=marker, markersize=4.5, linewidth=1.6, elinewidth=0.9, capsize=2,
    )  # fmt: skip


def _finish(axes: Axes, title: str, along: str, up: str, **legend: Any) -> None:
    finish_chart(axes, title, along=along, up=up, style=_STYLE)
    axes.legend(frameon=False, fontsize=8.5, labelcolor=_STYLE.ink, **legend)


def _save(figure: Figure, title: str, path: Path) -> None:
    figure.suptitle(title, color=_STYLE.ink, fontsize=11, x=0.01, ha="left")
    write_figure(figure, path, dots_per_inch=_DOTS_PER_INCH)


def _math(name: str) -> str:
    return name.replace("N_l", "$N_l$")
