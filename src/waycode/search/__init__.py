"""Search over tokens: pure functions of a decode callable and a codebook.

`beam_search` (greedy for a width of 1) and `exhaustive_search` find codes, `refine` moves a code off the codebook's
levels by gradient descent. The learned model enters only as a callable.
"""

from waycode.search.beam import CostFunction, Extend, Gate, TieBreak, beam_search, exhaustive_search
from waycode.search.codebook import Codebook
from waycode.search.costs import Costs, as_levels, lexicographic_order
from waycode.search.refine import RefineResult, refine
from waycode.search.result import SearchResult, SearchStatus, Trace, TraceStep

__all__ = [
    "Codebook",
    "CostFunction",
    "Costs",
    "Extend",
    "Gate",
    "RefineResult",
    "SearchResult",
    "SearchStatus",
    "TieBreak",
    "Trace",
    "TraceStep",
    "as_levels",
    "beam_search",
    "exhaustive_search",
    "lexicographic_order",
    "refine",
]
