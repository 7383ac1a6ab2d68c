"""The reconstruction report as one picture: the table, the beam widths and what the predicted spread is worth."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from waycode.evaluation.orderings import CONTINUOUS, ENCODER_2, ENCODER_3, GREEDY_2, GREEDY_3
from waycode.evaluation.reconstruction_report import PAPER_ADE_M, ReconstructionReport
from waycode.plotting.charts import finish_chart
from waycode.plotting.style import Style

_STYLE = Style()
_LOOKS = {  # colour says who found the code, the line how finely it is rounded
    ENCODER_2: (_STYLE.faint_ink, "-", "o"),
    ENCODER_3: (_STYLE.faint_ink, "--", "s"),
    CONTINUOUS: (_STYLE.ink, ":", "D"),
    GREEDY_2: (_STYLE.ego, "-", "o"),
    GREEDY_3: (_STYLE.ego, "--", "s"),
}


def draw_reconstruction(report: ReconstructionReport) -> Figure:
    """Three panels: ADE by tokens, ADE by beam width, FDE by coverage."""
    figure = Figure(figsize=(13, 4.8), facecolor=_STYLE.paper, layout="constrained")
    by_tokens, by_beam, by_coverage = figure.subplots(1, 3, width_ratios=[1.25, 1, 1])
    _draw_tokens(by_tokens, report)
    _draw_beams(by_beam, report)
    _draw_coverage(by_coverage, report)
    figure.suptitle(
        f"{report.model}: {report.num_agents:,} road users in {report.num_scenes:,} scenes of {report.data}",
        color=_STYLE.ink, fontsize=11, x=0.01, ha="left",
    )  # fmt: skip
    return figure


def save_reconstruction(report: ReconstructionReport, path: Path) -> None:
    draw_reconstruction(report).savefig(path, dpi=150)


def _draw_tokens(axes: Axes, report: ReconstructionReport) -> None:
    shifts = [(number - (len(report.table) - 1) / 2) * 0.05 for number in range(len(report.table))]  # bars side by side
    for shift, (name, cells) in zip(shifts, report.table.items(), strict=True):
        colour, line, marker = _LOOKS[name]
        tokens = [count + 1 + shift for count in range(len(cells))]
        mean = [cell.ade_m for cell in cells]
        spread = [[cell.ade_m - cell.low_m for cell in cells], [cell.high_m - cell.ade_m for cell in cells]]
        axes.errorbar(
            tokens, mean, yerr=spread, color=colour, linestyle=line, marker=marker, markersize=4.5, linewidth=1.6,
            elinewidth=0.9, capsize=2, label=name.replace("N_l", "$N_l$"),
        )  # fmt: skip
    paper = PAPER_ADE_M[GREEDY_2]
    if len(paper) == len(report.table[GREEDY_2]):
        axes.plot(
            [1, 2, 3], paper, linestyle="none", marker="_", markersize=16, color=_STYLE.future,
            label="paper, greedy $N_l$ = 2, WOMD",
        )  # fmt: skip
    axes.set_xticks([count + 1 for count in range(len(report.table[GREEDY_2]))])
    _finish(axes, "Reconstruction", "tokens", "ADE in m (bars: 95 %)")


def _draw_beams(axes: Axes, report: ReconstructionReport) -> None:
    widths, cells = list(report.beam_ade_m), list(report.beam_ade_m.values())
    places = range(len(widths))
    mean = [cell.ade_m for cell in cells]
    axes.fill_between(
        places, [cell.low_m for cell in cells], [cell.high_m for cell in cells], color=_STYLE.ego, alpha=0.13, lw=0
    )
    axes.plot(places, mean, color=_STYLE.ego, marker="o", markersize=4.5, linewidth=1.6, label="beam search $N_l$ = 2")
    for name, line in ((ENCODER_2, "-"), (CONTINUOUS, ":")):
        colour = _LOOKS[name][0]
        label = name.replace("N_l", "$N_l$")
        axes.axhline(report.table[name][-1].ade_m, color=colour, linestyle=line, linewidth=1.4, label=label)
    axes.set_xticks(list(places), [str(width) for width in widths])
    _finish(axes, f"Wider search, {len(report.table[GREEDY_2])} tokens", "beam width", "ADE in m")


def _draw_coverage(axes: Axes, report: ReconstructionReport) -> None:
    for name, pairs in report.risk_coverage.items():
        colour, line, marker = _LOOKS[name]
        axes.plot(
            [100 * share for share, _ in pairs], [error for _, error in pairs], color=colour, linestyle=line,
            marker=marker, markersize=4.5, linewidth=1.6, label=name.replace("N_l", "$N_l$"),
        )  # fmt: skip
    axes.set_xlim(0, 104)
    _finish(axes, "Most certain predictions first", "share of road users in %", "their FDE in m")


def _finish(axes: Axes, title: str, along: str, up: str) -> None:
    finish_chart(axes, title, along=along, up=up, style=_STYLE)
    axes.legend(
        frameon=False, fontsize=8.5, labelcolor=_STYLE.ink, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2
    )  # below: nowhere inside is free for every model
