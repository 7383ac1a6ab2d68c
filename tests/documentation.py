"""The code of README and docs: blocks in the order of a page, and command lines made small enough for a test."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Not the API reference (signatures), not the changelog (past commands), not the reports' own page (checked elsewhere).
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *(ROOT / "docs").glob("*.md"))
    if path.name not in ("api.md", "results.md")
)
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
_NO_CODE = {"text", "bibtex", "sql"}  # languages of blocks that nobody here runs

# Why a command or a block is not run here. Keys are how it begins.
COMMANDS_NOT_RUN = {
    "make": "installs packages, or runs these tests; .ci/run does it",
    "pip install": "installs packages; .ci/run does it",
    ". .venv/bin/activate": "changes the shell",
    ".venv/bin/waycode studio": "serves until it is stopped: tests/test_studio_browser.py",
    "waycode studio": "serves until it is stopped: tests/test_studio_browser.py",
    "waycode demo": "tests/test_demo.py",
    "waycode eval closed-loop": "drives six planners for minutes: tests/test_closed_loop_campaign.py",
    "waycode ablate": "trains nineteen models: tests/test_ablation.py",
    "waycode calibrate": "needs 128 views of training scenes: tests/test_familiarity.py",
    "waycode train small ...": "an ellipsis: the settings are those of other commands",
    "python $NUPLAN_DEVKIT_ROOT": "needs nuplan-devkit, which no package index has",
    "git clone https://github.com/motional/nuplan-devkit": "the same",
    "python3.11 -m venv devkit-venv": "the same",
    "devkit-venv/bin/": "the same",
    "export PYTHONPATH=DEVKIT": "the same",
    "PYTHONPATH=": "the same",
}
BLOCKS_NOT_RUN = {
    ("docs/own_source.md", "from pathlib import Path"): "a module of its own: tests/test_own_source.py",
    ("docs/own_source.md", "from my_source import"): "tests/test_own_source.py",
    ("docs/nuplan.md", "from waycode.baselines import"): "needs nuplan-devkit: tests/test_nuplan_planner.py has a stub",
    ("docs/nuplan.md", "from pathlib import Path"): "needs nuplan-devkit: tests/test_nuplan_devkit.py",
}
# Text of blocks and commands that stands for the reader's own things, or for a training of an hour.
SUBSTITUTES = {
    'override(small(), ["noise.target_ade_m=0.8"]': 'override(small(), ["noise.target_ade_m=0.8", "steps=2"]',
    "wc.simulate(scene, planner)": "wc.simulate(scene, planner, config=SimulationConfig(horizon_s=0.5))",
    "--share 0.15": "--share 0.5",  # of a few scenes
    "--share 0.05": "--share 0.5",
    "--objective @objective.txt": "--objective slow-down(9)",
    "--agent car-7": "",
    "agent(12): goal-point(10, 3) + all: no-collision": "all: no-collision",
}
_SMALLER = {  # options by how a command begins; an option that is given gets this value too
    "data sumo": {"--scenes": "6"},
    "data convert": {"--scenes": "12"},
    "train": {"--steps": "2", "--threads": "1", "--val-scenes": "2"},
    "eval": {"--scenes": "2", "--threads": "1"},
    "simulate": {"--scenes": "1", "--horizon-s": "0.5"},
    "generate": {"--count": "1"},
}
# Tables of guided planning need a case: a bundled scene that has one, in place of the dataset.
CASES = {
    "left-turn": ("sample-crossings", 2),
    "lane-change": ("sample", 16),
    "slow-down": ("sample", 10),
    "goal": ("sample", 4),
}
_SMALL_RECIPES = {"paper": "tiny", "paper-nuplan": "tiny", "paper-joint": "tiny"}  # 28 million parameters
_ONE = {"--workers": "1", "--accelerator": "cpu", "--precision": "32-true"}


@dataclass(frozen=True)
class Block:
    """A block of code of a page."""

    page: str
    language: str  # "python" or "sh"
    text: str

    @property
    def reason(self) -> str | None:
        """Why the block is not run; None if it is."""
        return next(
            (why for (page, start), why in BLOCKS_NOT_RUN.items() if page == self.page and self.text.startswith(start)),
            None,
        )

    @property
    def commands(self) -> list[str]:
        """The command lines of a block of the shell, without comments."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line for line in (re.sub(r"\s+# .*", "", line).strip() for line in lines) if line]


def blocks(page: str) -> list[Block]:
    """The blocks of Python and of commands, in order."""
    found = []
    for language, text in _BLOCK.findall((ROOT / page).read_text()):
        if language in ("python", "sh"):
            found.append(Block(page, language, text))
        elif language not in _NO_CODE and text.startswith("waycode "):
            raise AssertionError(f"{page}: a block of commands without its language: write ```sh")
    return found


def reason_not_to_run(command: str) -> str | None:
    """Why a command line is not run; None if it is."""
    return next((why for start, why in COMMANDS_NOT_RUN.items() if command.startswith(start)), None)


def substituted(text: str) -> str:
    for old, new in SUBSTITUTES.items():
        text = text.replace(old, new)
    return text


def small_arguments(command: str) -> list[str]:
    """The arguments of a command of ours, with small sizes."""
    program, *arguments = shlex.split(substituted(command))
    assert program == "waycode", f"{command}: neither run nor listed in COMMANDS_NOT_RUN"
    for start, options in _SMALLER.items():
        if " ".join(arguments).startswith(f"{start} "):
            for name, value in options.items():
                arguments = _with_option(arguments, name, value, add=True)
    for name, value in _ONE.items():
        arguments = _with_option(arguments, name, value, add=False)
    if arguments[0] == "train":
        arguments[1] = _SMALL_RECIPES.get(arguments[1], arguments[1])
    return arguments


def _with_option(arguments: list[str], name: str, value: str, *, add: bool) -> list[str]:
    if name in arguments:
        place = arguments.index(name) + 1
        return [*arguments[:place], value, *arguments[place + 1 :]]
    return [*arguments, name, value] if add else arguments
