"""`waycode objectives`: what can be asked of a plan."""

from dataclasses import asdict, dataclass

from waycode.cli.console import say, say_json
from waycode.cli.data import Flag


@dataclass(frozen=True, kw_only=True)
class Objectives:
    """List the objectives, their parameters and how they are put together."""

    json: Flag = False
    """Print the list as JSON."""

    def run(self) -> int:
        from waycode.cli.planning_tables import objectives_tables
        from waycode.objectives import describe_objectives

        described = describe_objectives()
        if self.json:
            say_json([asdict(objective) for objective in described])
        else:
            say(objectives_tables(described))
        return 0
