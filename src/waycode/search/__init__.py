"""Search over tokens: pure functions over a decode callable and a codebook."""

from waycode.search.beam import beam_search
from waycode.search.codebook import Codebook
from waycode.search.costs import Costs, as_levels, best_first
from waycode.search.exhaustive import exhaustive_search
from waycode.search.refine import RefineResult, refine
from waycode.search.result import SearchResult, SearchStatus
from waycode.search.scoring import Doubt, Extend, Gate, Objective
from waycode.search.trace import Trace, TraceStep

__all__ = [
    "Codebook",
    "Costs",
    "Doubt",
    "Extend",
    "Gate",
    "Objective",
    "RefineResult",
    "SearchResult",
    "SearchStatus",
    "Trace",
    "TraceStep",
    "as_levels",
    "beam_search",
    "best_first",
    "exhaustive_search",
    "refine",
]
