"""What guided planning achieves, as tables for people."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from waycode.cli.tables import plain_table
from waycode.evaluation.guidance import SUCCESS, UNCERTAIN
from waycode.evaluation.guidance_report import GuidanceReport
from waycode.evaluation.realism import REALISM_MEASURES
from waycode.evaluation.report import Estimate

_SHARES = (SUCCESS, *REALISM_MEASURES, UNCERTAIN)  # shown as percentages
_HEADINGS = {  # short enough for a terminal of 80 columns
    "leftward_turn_deg": "turn\ndeg",
    "centre_distance_m": "centre\nm",
    "mean_speed_mps": "mean\nm/s",
    "late_speed_mps": "late\nm/s",
    "edge_contact": "edge",
    "infeasible": "infeas.",
    "collision": "collis.",
    "uncertain": "unsure",
}


def guidance_tables(report: GuidanceReport) -> RenderableType:
    """A table per group of cases, and which of the hoped-for figures were found."""
    parts: list[RenderableType] = [_group_table(report, group) for group in report.rows]
    parts.append(Text("±: half of the 95 % interval; shares in %\n"))
    parts += [
        Text(f"{'holds' if target.holds else 'FAILS'}  {target.claim}: {target.found}") for target in report.targets
    ]
    return Group(*parts)


def _group_table(report: GuidanceReport, group: str) -> Table:
    rows = report.rows[group]
    names = list(next(iter(rows.values())))
    counts = f"{report.num_cases[group]:,} cases in {report.scenes_with_cases[group]:,} of {report.num_scenes:,} scenes"
    table = plain_table(f"{group}: {counts}", "", *(_HEADINGS.get(name, name.replace("_", "\n")) for name in names))
    for method, measures in rows.items():
        table.add_row(method, *(_cell(measures[name], share=name in _SHARES) for name in names))
    return table


def _cell(value: Estimate, *, share: bool) -> str:
    half = (value.high - value.low) / 2
    return f"{100 * value.mean:.1f}\n±{100 * half:.1f}" if share else f"{value.mean:.2f}\n±{half:.2f}"
