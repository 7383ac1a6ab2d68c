"""Tells all stories on a dataset and writes the page."""

from collections.abc import Callable
from pathlib import Path

from waycode.dataset.dataset import Dataset
from waycode.demo.casting import actors
from waycode.demo.gallery import one_per_family, save_gallery
from waycode.demo.page import page_of
from waycode.demo.report import DemoReport, StoryReport
from waycode.demo.stories import STORIES, SWAP
from waycode.demo.telling import tell, tell_swap
from waycode.planner import Planner

PAGE, GALLERY = "index.html", "gallery.png"
NUM_PICTURES = len(STORIES) + 2  # the token swap and the gallery


def run_demo(
    dataset: Dataset, out: str | Path, *, model: str = "sumo-small", on_picture: Callable[[], None] = lambda: None
) -> DemoReport:
    """Plans, draws a picture per story, a sheet of the scenes and the page; calls `on_picture` after each picture."""
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    planner = Planner.from_pretrained(model)
    cast = actors(dataset)
    told: list[StoryReport] = []
    missing: list[str] = []
    for story in (*STORIES, SWAP):
        report = tell_swap(cast, planner, folder=out) if story is SWAP else tell(story, cast, planner, folder=out)
        if report is None:
            missing.append(story.title)
        else:
            told.append(report)
        on_picture()
    families = one_per_family(dataset)
    save_gallery(families, out / GALLERY)
    on_picture()
    report_of_all = DemoReport(
        page=str(out / PAGE),
        model=model,
        stories=tuple(told),
        missing=tuple(missing),
        gallery=GALLERY,
        families=tuple(families),
    )
    (out / PAGE).write_text(page_of(report_of_all), encoding="utf-8")
    return report_of_all
