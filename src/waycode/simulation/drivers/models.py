"""The models of planners in the loop: each is loaded once per process, when it is first asked."""

from functools import cache

from waycode.planner import Planner


@cache
def planner_of(name_or_folder: str) -> Planner:
    """The planner with a bundled model, or with that of a folder or a run."""
    return Planner.from_pretrained(name_or_folder)
