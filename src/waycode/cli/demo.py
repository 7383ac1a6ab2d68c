"""`waycode demo`: pictures of the bundled scenes."""

from dataclasses import dataclass
from pathlib import Path

from waycode.cli.console import progress, say, say_json
from waycode.cli.data import Flag


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Draw one bundled scene of each family and a page that shows them; needs no network and no SUMO."""

    out: Path = Path("waycode-demo")
    """Folder for the pictures and index.html."""
    json: Flag = False
    """Print what was drawn as JSON."""

    def run(self) -> int:
        from waycode.cli.tables import demo_table
        from waycode.demo import bundled_dataset, one_per_family, run_demo

        scenes = one_per_family(bundled_dataset())
        with progress("drawing", len(scenes)) as advance:
            report = run_demo(scenes, self.out, on_scene=lambda: advance(1))
        if self.json:
            say_json(report)
        else:
            say(demo_table(report))
            say(f"open {report.page}")
        return 0
