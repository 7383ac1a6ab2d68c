"""The demo: what the planner does on the bundled scenes when it is asked for different things, as a page."""

from waycode.demo.gallery import bundled_dataset, one_per_family, save_gallery
from waycode.demo.page import page_of
from waycode.demo.report import DemoReport, StoryReport
from waycode.demo.run import NUM_PICTURES, run_demo

__all__ = [
    "NUM_PICTURES",
    "DemoReport",
    "StoryReport",
    "bundled_dataset",
    "one_per_family",
    "page_of",
    "run_demo",
    "save_gallery",
]
