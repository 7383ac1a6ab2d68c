"""The demo: guided planning on the bundled scenes, with the cases and measures of `waycode.evaluation`, as a page."""

from waycode.demo.page import DemoReport, SectionReport, page_of
from waycode.demo.run import NUM_PICTURES, bundled_dataset, one_per_family, run_demo

__all__ = [
    "NUM_PICTURES",
    "DemoReport",
    "SectionReport",
    "bundled_dataset",
    "one_per_family",
    "page_of",
    "run_demo",
]
