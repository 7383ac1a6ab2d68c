"""Search over tokens: pure functions over a decode callable and a codebook."""

from waycode.search.beam import Extend, SearchResult, beam_search
from waycode.search.codebook import Codebook
from waycode.search.costs import as_levels, best_first

__all__ = ["Codebook", "Extend", "SearchResult", "as_levels", "beam_search", "best_first"]
