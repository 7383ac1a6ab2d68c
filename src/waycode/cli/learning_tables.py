"""Figures of training and evaluation as tables for people."""

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from waycode.cli.tables import plain_table
from waycode.evaluation.reconstruction_report import ReconstructionReport
from waycode.evaluation.report import Estimate
from waycode.training.card import table_of
from waycode.training.validation import ValidationReport


def validation_table(report: ValidationReport, *, samples_per_s: float) -> Table:
    """ADE by tokens at one moment of a run."""
    columns = table_of(report.figures)
    table = plain_table(
        f"step {report.step:,}: sigma {report.sigma:.3f}, {report.minutes:.1f} min, {samples_per_s:.0f} samples/s",
        "tokens", *columns,
    )  # fmt: skip
    for count in range(max((len(column) for column in columns.values()), default=0)):
        table.add_row(str(count + 1), *(f"{column[count]:.3f}" for column in columns.values()))
    return table


def reconstruction_tables(report: ReconstructionReport) -> RenderableType:
    """Everything that `waycode eval reconstruction` shows."""
    heading = f"{report.num_agents:,} road users in {report.num_scenes:,} scenes, mean over types: ADE in m"
    parts: list[RenderableType] = [_cells(heading, report.table)]
    parts += [
        _cells(f"{report.agents_by_type[kind]:,} of type {kind}", table) for kind, table in report.by_type.items()
    ]
    parts += [Text("±: half of the 95 % interval\n"), _beams(report), _risks(report), *_orderings(report)]
    return Group(*parts)


def _cells(title: str, columns: Mapping[str, Sequence[Estimate]]) -> Table:
    table = plain_table(title, "tokens", *(name.replace(" ", "\n", 1) for name in columns))
    for count in range(max(len(cells) for cells in columns.values())):
        table.add_row(str(count + 1), *(_cell(cells[count]) for cells in columns.values()))
    return table


def _cell(cell: Estimate) -> str:
    return f"{cell.mean:.3f} ±{(cell.high - cell.low) / 2:.2f}"


def _beams(report: ReconstructionReport) -> Table:
    table = plain_table("wider search at N_l = 2, all tokens: ADE in m", "beam width", "ADE")
    for width, cell in report.beam_ade_m.items():
        table.add_row(str(width), _cell(cell))
    return table


def _risks(report: ReconstructionReport) -> Table:
    table = plain_table("most certain first, all tokens: FDE in m", "share", *report.risk_coverage)
    for rows in zip(*report.risk_coverage.values(), strict=True):
        table.add_row(f"{rows[0][0]:.0%}", *(f"{error:.3f}" for _, error in rows))
    table.add_row("rises", *("yes" if rises else "NO" for rises in report.risk_is_monotone.values()))
    return table


def _orderings(report: ReconstructionReport) -> list[Text]:
    lines = []
    for ordering in report.orderings:
        lines.append(Text(f"{'holds' if ordering.holds else 'FAILS'}  {ordering.claim}"))
        lines += [Text(f"       {place}") for place in ordering.breaks]
    return lines
