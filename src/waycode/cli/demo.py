"""`waycode demo`: what the planner does on the bundled scenes, as pictures."""

from dataclasses import dataclass
from pathlib import Path

from waycode.cli.console import progress, say, say_json
from waycode.cli.data import Flag


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Plan on the bundled scenes with several objectives and write a page that shows it; needs no network, no SUMO."""

    out: Path = Path("waycode-demo")
    """Folder for the pictures and index.html."""
    model: str = "sumo-small"
    """Name of a bundled model, or folder of a model."""
    json: Flag = False
    """Print what was found as JSON."""

    def run(self) -> int:
        from waycode.cli.tables import demo_table
        from waycode.demo import NUM_PICTURES, bundled_dataset, run_demo

        with progress("planning and drawing", NUM_PICTURES, unit="pictures") as advance:
            datasets = [bundled_dataset(), bundled_dataset("sumo-crossings")]
            report = run_demo(datasets, self.out, model=self.model, on_picture=lambda: advance(1))
        if self.json:
            say_json(report)
        else:
            say(demo_table(report))
            say(f"open {report.page}")
        return 0
