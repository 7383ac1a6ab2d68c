"""A dataset's summary as tables for people."""

import json
from collections.abc import Mapping

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table

from waycode.dataset.summary import DatasetSummary
from waycode.demo import DemoReport


def summary_tables(summary: DatasetSummary) -> RenderableType:
    """Everything that `waycode data info` shows; tables without rows are left out."""
    num_scenes = max(summary.num_scenes, 1)
    tables = [
        _overview(summary),
        _road_users(summary),
        _manoeuvres(summary),
        _counts("tags", summary.tags, "scenes", num_scenes),
        _per_scene("map features", summary.map_features, num_scenes),
        _counts("scenes with", summary.scenes_with, "scenes", num_scenes),
        _counts("turned down", summary.rejected, "scenes", sum(summary.rejected.values())),
        _settings(summary),
    ]
    return Group(*(table for table in tables if table.row_count))


def plain_table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    table.show_header = any(columns)
    for position, column in enumerate(columns):
        table.add_column(column, justify="left" if position == 0 else "right")
    return table


def _overview(summary: DatasetSummary) -> Table:
    table = plain_table(summary.folder, "", "")
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


def _road_users(summary: DatasetSummary) -> Table:
    table = plain_table("road users", "", "total", "per scene", "moving", "comfort", "to predict", "comfort ")
    for kind, counts in summary.road_users.items():
        table.add_row(
            kind, f"{counts.total:,}", f"{counts.per_scene:.1f}", f"{counts.moving:,}",
            _share(counts.comfortable, counts.judged), f"{counts.to_predict:,}",
            _share(counts.comfortable_to_predict, counts.judged_to_predict),
        )  # fmt: skip
    table.caption = "comfort: share that keeps to the six bounds, of those that move and are seen long enough"
    table.caption_justify = "left"
    return table


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _manoeuvres(summary: DatasetSummary) -> Table:
    table = plain_table("manoeuvres", "", "all tracks", "share", "to predict", "share")
    everyone, predicted = sum(summary.manoeuvres.values()), sum(summary.predicted_manoeuvres.values())
    for name, count in summary.manoeuvres.items():
        chosen = summary.predicted_manoeuvres.get(name, 0)
        table.add_row(name, f"{count:,}", _share(count, everyone), f"{chosen:,}", _share(chosen, predicted))
    return table


def _counts(title: str, counts: Mapping[str, int], unit: str, of: int) -> Table:
    table = plain_table(title, "", unit, "share")
    for name, count in counts.items():
        table.add_row(name, f"{count:,}", _share(count, of))
    return table


def _per_scene(title: str, counts: Mapping[str, int], num_scenes: int) -> Table:
    table = plain_table(title, "", "total", "per scene")
    for name, count in counts.items():
        table.add_row(name, f"{count:,}", f"{count / num_scenes:.1f}")
    return table


def _settings(summary: DatasetSummary) -> Table:
    table = plain_table("settings", "", "")
    table.columns[1].justify = "left"
    table.columns[1].overflow = "fold"
    for name, value in summary.settings.items():
        table.add_row(name, json.dumps(value))
    table.add_row("sha256", summary.settings_sha256)
    return table


def demo_table(report: DemoReport) -> Table:
    """Successes by section of the demo."""
    table = plain_table(f"demo with {report.model}", "asked for", "successes", "as counted by", "tokens", "plan in ms")
    for section in report.sections:
        table.add_row(
            section.title, f"{section.num_success} of {section.num_cases}", section.counted_as,
            " ".join(map(str, section.tokens)), f"{section.plan_ms:.0f}",
        )  # fmt: skip
    table.caption = "tokens and time: of the plan in the picture"
    table.caption_justify = "left"
    return table
