"""A guidance report as pictures: success by depth beside realism, and a few cases with what was done and found."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from waycode.evaluation.guidance import BEAM, DECODED, RECORDED, SUCCESS, UNGUIDED, AnsweredCase, greedy
from waycode.evaluation.guidance_report import Estimate, GuidanceReport, Rows
from waycode.evaluation.realism import MEASURES
from waycode.evaluation.selection import Group
from waycode.plotting import ComparisonPanel, save_comparison_picture
from waycode.plotting.charts import finish_chart
from waycode.plotting.style import Style
from waycode.scene import Scene

MOST_EXAMPLES = 8  # of success and of failure, the same number of each group
_STYLE = Style()
_COLOURS = (_STYLE.chosen, _STYLE.candidate, _STYLE.ego, _STYLE.original)  # of the groups
_SHORT = {  # names of groups that fit above a panel
    Group.AVAILABLE: "all-way stop",
    Group.AVAILABLE_ELSEWHERE: "other crossing",
    Group.NOT_AVAILABLE: "no left turn",
    Group.FROM_ANOTHER_LANE: "from another lane",
    Group.ZERO: "no change",
    Group.ONE: "one change",
    Group.STEADY: "slow down",
}


def save_guidance(report: GuidanceReport, path: Path) -> None:
    draw_guidance(report).savefig(path, dpi=150)


def draw_guidance(report: GuidanceReport) -> Figure:
    """A panel of success by number of tokens, and one of realism per group."""
    groups = list(report.rows)
    figure = Figure(figsize=(4.6 + 4.2 * len(groups), 5.2), facecolor=_STYLE.paper, layout="constrained")
    first, *others = figure.subplots(1, 1 + len(groups), squeeze=False)[0]
    for group, colour in zip(groups, _COLOURS[: len(groups)], strict=True):
        _draw_success(first, report.rows[group], num_tokens=report.num_tokens, colour=colour, label=group)
    first.set_xticks(range(report.num_tokens + 3), ["none", *map(str, range(1, report.num_tokens + 1)), "", BEAM])
    _finish(first, "Success", "tokens of greedy search", "% of cases (bars: 95 %)")
    for axes, group in zip(others, groups, strict=True):
        _draw_realism(axes, report.rows[group], num_tokens=report.num_tokens)
        _finish(axes, f"{group} ({report.num_cases[group]:,} cases)", "", "% of cases (bars: 95 %)")
    figure.suptitle(
        f"{report.task}: {report.model} on {report.num_scenes:,} scenes of {report.data}",
        color=_STYLE.ink, fontsize=11, x=0.01, ha="left",
    )  # fmt: skip
    return figure


def save_examples(
    report: GuidanceReport, answered: Sequence[AnsweredCase], path: Path, *, scene_of: Callable[[int], Scene]
) -> None:
    """Draws the first cases that greedy search with all tokens solves, and the first that it does not."""
    method = greedy(report.num_tokens)
    panels = [_panel(one, method, scene_of(one.scene_number)) for one in chosen_examples(answered, method)]
    save_comparison_picture(panels, path, title=f"{report.task}: {method}")


def chosen_examples(answered: Sequence[AnsweredCase], method: str) -> list[AnsweredCase]:
    """The first successes and failures of each group, from different scenes."""
    chosen: dict[tuple[str, bool], list[AnsweredCase]] = {}
    most = max(1, MOST_EXAMPLES // (2 * len({one.case.group for one in answered})))
    for one in answered:
        solved = bool(one.answer(method).measures[SUCCESS])
        kind = chosen.setdefault((one.case.group, solved), [])
        if len(kind) < most and one.scene_number not in {other.scene_number for other in kind}:
            kind.append(one)
    return [one for _, kind in sorted(chosen.items(), key=lambda item: (item[0][0], not item[0][1])) for one in kind]


def _panel(one: AnsweredCase, method: str, scene: Scene) -> ComparisonPanel:
    found = one.answer(method)
    wrong = [name.replace("_", " ") for name in MEASURES if found.measures[name]]
    return ComparisonPanel(
        scene=scene,
        agent=one.case.agent,
        planned_m=found.future_m,
        recorded_m=one.answer(RECORDED).future_m,
        caption=f"{_SHORT[one.case.group]}: {'done' if found.measures[SUCCESS] else 'not done'}",
        detail=", ".join([scene.tags[0] if scene.tags else scene.source, *wrong]),
    )


def _draw_success(axes: Axes, rows: Rows, *, num_tokens: int, colour: str, label: str) -> None:
    line = [rows[UNGUIDED][SUCCESS], *(rows[greedy(depth)][SUCCESS] for depth in range(1, num_tokens + 1))]
    _bars(axes, np.arange(len(line)), line, colour=colour, label=label, line="-")
    _bars(axes, np.array([num_tokens + 2]), [rows[BEAM][SUCCESS]], colour=colour, label=None, line="none")
    axes.axhline(100 * rows[RECORDED][SUCCESS].mean, color=colour, linestyle=":", linewidth=1.2)


def _draw_realism(axes: Axes, rows: Rows, *, num_tokens: int) -> None:
    looks = {
        RECORDED: _STYLE.original,
        DECODED: _STYLE.ink,
        UNGUIDED: _STYLE.faint_ink,
        greedy(num_tokens): _STYLE.chosen,
        BEAM: _STYLE.ego,
    }
    for number, (method, colour) in enumerate(looks.items()):
        place = np.arange(len(MEASURES)) + (number - (len(looks) - 1) / 2) * 0.15
        _bars(axes, place, [rows[method][name] for name in MEASURES], colour=colour, label=method, line="none")
    axes.set_xticks(range(len(MEASURES)), [name.replace("_", " ") for name in MEASURES])


def _bars(
    axes: Axes, place: np.ndarray, values: Sequence[Estimate], *, colour: str, label: str | None, line: str
) -> None:
    mean = np.array([100 * value.mean for value in values])
    spread = [mean - [100 * value.low for value in values], [100 * value.high for value in values] - mean]
    axes.errorbar(
        place, mean, yerr=np.maximum(spread, 0), color=colour, label=label, linestyle=line, marker="o", markersize=4.5,
        linewidth=1.6, elinewidth=0.9, capsize=2,
    )  # fmt: skip


def _finish(axes: Axes, title: str, along: str, up: str) -> None:
    finish_chart(axes, title, along=along, up=up, style=_STYLE)
    axes.legend(  # below: wherever it lay within the panel, there are curves in some report
        frameon=False, fontsize=8.5, labelcolor=_STYLE.ink, loc="upper left", bbox_to_anchor=(-0.02, -0.13), ncols=2
    )
