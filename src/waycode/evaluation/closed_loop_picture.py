"""A closed-loop report as a picture: the score, collisions and progress of every row, a panel per kind of traffic."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from waycode.evaluation.closed_loop import TRAFFIC_LABELS, ClosedLoopReport, ClosedLoopRow
from waycode.evaluation.guidance_report import Estimate
from waycode.plotting.charts import finish_chart
from waycode.plotting.style import Style

_STYLE = Style()
_LOOKS = {"CLS": _STYLE.chosen, "S-CR": _STYLE.ego, "S-PR": _STYLE.original}


def save_closed_loop(report: ClosedLoopReport, path: Path) -> None:
    draw_closed_loop(report).savefig(path, dpi=150)


def draw_closed_loop(report: ClosedLoopReport) -> Figure:
    """A panel per kind of traffic, the rows along it."""
    traffics = list(dict.fromkeys(row.traffic for row in report.rows))
    widest = max(sum(row.traffic == traffic for row in report.rows) for traffic in traffics)
    figure = Figure(figsize=(1.5 + 0.85 * widest * len(traffics), 4.8), facecolor=_STYLE.paper, layout="constrained")
    for axes, traffic in zip(figure.subplots(1, len(traffics), squeeze=False)[0], traffics, strict=True):
        rows = [row for row in report.rows if row.traffic == traffic]
        _draw_rows(axes, rows)
        title = f"{TRAFFIC_LABELS[traffic]} ({rows[0].num_scenarios:,} scenarios)"
        finish_chart(axes, title, along="", up="% (bars: 95 %)", style=_STYLE)
        axes.set_ylim(0, 104)
        axes.legend(frameon=False, fontsize=8.5, labelcolor=_STYLE.ink, loc="lower right")
    figure.suptitle(f"{report.name}: {report.model} on {report.data}", color=_STYLE.ink, fontsize=11, x=0.01, ha="left")
    return figure


def _draw_rows(axes: Axes, rows: Sequence[ClosedLoopRow]) -> None:
    values = {
        "CLS": [row.cls for row in rows],
        "S-CR": [row.metrics["no_at_fault_collision"] for row in rows],
        "S-PR": [row.metrics["progress"] for row in rows],
    }
    for number, (name, estimates) in enumerate(values.items()):
        _draw_estimates(axes, np.arange(len(rows)) + (number - 1) * 0.2, estimates, name=name)
    axes.set_xticks(range(len(rows)), [row.planner for row in rows], rotation=30, ha="right")


def _draw_estimates(axes: Axes, place: np.ndarray, estimates: Sequence[Estimate], *, name: str) -> None:
    mean = np.array([estimate.mean for estimate in estimates])
    spread = [mean - [estimate.low for estimate in estimates], [estimate.high for estimate in estimates] - mean]
    axes.errorbar(
        place, mean, yerr=np.maximum(spread, 0), color=_LOOKS[name], label=name, linestyle="none", marker="o",
        markersize=4.5, elinewidth=0.9, capsize=2,
    )  # fmt: skip
