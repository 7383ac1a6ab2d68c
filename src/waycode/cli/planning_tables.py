"""Plans, objectives and manoeuvres as tables for people."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from waycode.cli.tables import plain_table
from waycode.objectives.registry import ObjectiveDescription, Parameter
from waycode.planner import Plan, RecordedManoeuvre

GRAMMAR = """a + b, 2 * a    sums and weights
a then b        a first; of those that are equal in it, the best by b
a where b       a, among those that are best by the constraint b
left-turn, goal-point(10, 3), goal-point(x_m=10, y_m=3, frame=agent)
"""


def plan_table(plan: Plan, title: str) -> Table:
    """What a plan is worth, and where it ends."""
    table = plain_table(f"{title}: {plan.agent_id} in {plan.scene_id}", "", "")
    table.columns[1].justify = "left"
    table.columns[1].overflow = "fold"
    table.add_row("status", f"{plan.status}: {plan.message}")
    for name, cost in plan.costs.items():
        table.add_row(name, f"{cost:.4g}")
    table.add_row("tokens", "refined, no codes" if plan.tokens is None else " ".join(map(str, plan.tokens)))
    end = f"after {plan.time_s[-1]:g} s at x {plan.x_m[-1]:.1f} m, y {plan.y_m[-1]:.1f} m, {plan.speed_mps[-1]:.1f} m/s"
    table.add_row("ends", f"{end}, standard deviation {plan.final_std_m:.2f} m")
    table.add_row("decodes", str(plan.num_decodes))
    times = [f"{name} {1000 * seconds:.1f} ms" for name, seconds in plan.timings_s.items()]
    table.add_row("took", ", ".join(times))
    return table


def entries_table(found: Sequence[RecordedManoeuvre], *, num_found: int, num_indexed: int) -> Table:
    """Recorded manoeuvres, with how far their codes are from what was asked for."""
    table = plain_table(
        f"{num_found:,} of {num_indexed:,} recorded manoeuvres", "scene", "index", "road user", "manoeuvre", "tokens",
        "distance",
    )  # fmt: skip
    for column in table.columns:
        column.overflow = "fold"  # an id that is cut short cannot be used
    for entry in found:
        distance = "" if entry.distance is None else f"{entry.distance:.3f}"
        tokens = " ".join(map(str, entry.tokens))
        table.add_row(entry.scene_id, str(entry.scene_index), entry.agent_id, entry.manoeuvre, tokens, distance)
    return table


def objectives_tables(described: Sequence[ObjectiveDescription]) -> RenderableType:
    """What can be asked for, and how it is put together."""
    table = plain_table("objectives", "name", "what it wants", "parameters", "gradient")
    for column in table.columns[1:3]:
        column.justify, column.overflow = "left", "fold"
    for objective in described:
        parameters = "\n".join(map(_parameter, objective.parameters))
        table.add_row(objective.name, objective.summary, parameters, "yes" if objective.differentiable else "no")
    return Group(table, Text(GRAMMAR))


def _parameter(parameter: Parameter) -> str:
    unit = "" if parameter.unit is None else f" {parameter.unit}"
    if parameter.required:
        return f"{parameter.name}{unit and f' ({unit.strip()})'}"
    value = parameter.default
    shown = "not given" if value is None else (f"{value:.4g}" if isinstance(value, float) else str(value)) + unit
    return f"{parameter.name} = {shown}"
