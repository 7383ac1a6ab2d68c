"""What the demo has made, as plain values."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class StoryReport:
    """How a story came out; `did_it` of `num_actors` road users did what was asked, and the best of them is shown."""

    name: str
    title: str
    asked: str
    look: str
    criterion: str  # what counts as done
    found: str
    objective: str  # as `waycode plan --objective` takes it; "" if nothing was searched for
    picture: str  # file name, beside the page
    scene_id: str
    scene_index: int  # in the dataset
    agent_id: str
    tokens: tuple[int, ...]
    status: str
    costs: dict[str, float]
    did: bool
    did_it: int
    num_actors: int
    plan_ms: float  # of search, or of decoding if nothing was searched for


@dataclass(frozen=True, kw_only=True)
class DemoReport:
    """The page and what is on it."""

    page: str
    model: str
    stories: tuple[StoryReport, ...]
    missing: tuple[str, ...]  # titles of the stories for which no road user fits
    gallery: str  # file name, beside the page
    families: tuple[str, ...]
