"""The models of planners in the loop: each is loaded once per process, when it is first asked."""

from functools import cache

from waycode.planner import Planner
from waycode.training.folders import open_model


@cache
def planner_of(name_or_folder: str) -> Planner:
    """The planner with a bundled model, or with that of a folder or a run."""
    saved = open_model(name_or_folder)
    return Planner(saved.model.requires_grad_(False), sigma_max_m=saved.sigma_max_m)  # nobody trains it
