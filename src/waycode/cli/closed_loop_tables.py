"""How planners drive, as tables for people."""

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from waycode.cli.tables import plain_table
from waycode.evaluation.closed_loop import TRAFFIC_LABELS, ClosedLoopRow, ScoreDifference
from waycode.evaluation.report import Estimate

_HEADINGS = {  # short, and without the two that are nearly always 100: a terminal has 80 columns
    "no_at_fault_collision": "S-CR",
    "progress": "S-PR",
    "drivable_area": "area",
    "time_to_collision": "TTC",
    "speed_limit": "limit",
    "comfort": "comf.",
}
MOST_NAMED = 10


def closed_loop_tables(
    title: str,
    rows: Sequence[ClosedLoopRow],
    *,
    left_out: Mapping[str, int],
    differences: Sequence[ScoreDifference] = (),
) -> RenderableType:
    """Scores with intervals and side by side, what was left out, and every scenario that failed with its reason."""
    parts: list[RenderableType] = [_scores(title, rows)]
    if differences:
        parts.append(_differences(differences))
    parts += [Text(f"left out: {count} scenes ({reason})") for reason, count in left_out.items()]
    for row in rows:
        if row.failed:
            parts.append(Text(f"{row.planner} failed in {len(row.failed)} of {row.num_scenarios} scenarios:"))
            parts += [Text(f"  {scene}: {why}") for scene, why in list(row.failed.items())[:MOST_NAMED]]
            if len(row.failed) > MOST_NAMED:
                parts.append(Text(f"  and {len(row.failed) - MOST_NAMED} more"))
    return Group(*parts)


def _scores(title: str, rows: Sequence[ClosedLoopRow]) -> Table:
    counts = sorted({row.num_scenarios for row in rows})
    table = plain_table(
        f"{title}, {' to '.join(map(str, counts))} scenarios", "planner, traffic", "CLS", *_HEADINGS.values(), "ms"
    )
    for row in rows:
        table.add_row(
            f"{row.planner}\n{TRAFFIC_LABELS[row.traffic]}", _cell(row.cls),
            *(_cell(row.metrics[name]) for name in _HEADINGS),
            f"{row.planning_ms_median:.0f}\n{row.planning_ms_95:.0f}",
        )  # fmt: skip
    table.caption = "±: half of the 95 % interval over scenarios; ms: processor time of a plan, median and 95 %"
    table.caption_justify = "left"
    return table


def _differences(differences: Sequence[ScoreDifference]) -> Table:
    (reference,) = {one.reference for one in differences}
    table = plain_table(f"CLS less that of {reference}, scenario by scenario", "planner, traffic", "points", "95 %")
    for one in differences:
        points = one.points
        name = f"{one.planner}, {TRAFFIC_LABELS[one.traffic]}"
        table.add_row(name, f"{points.mean:+.1f}", f"{points.low:+.1f} to {points.high:+.1f}")
    return table


def _cell(value: Estimate) -> str:
    return f"{value.mean:.1f}\n±{(value.high - value.low) / 2:.1f}"
