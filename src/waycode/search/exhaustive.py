"""Search over all codes: what a beam is measured against."""

import torch

from waycode.search.beam import expand
from waycode.search.codebook import Codebook
from waycode.search.result import SearchResult, conclude
from waycode.search.scoring import Decoded, Doubt, Extend, Gate, Objective, State, score

MAX_CODES = 2**18  # more do not fit into memory with a decoder of any use


@torch.no_grad()
def exhaustive_search(
    extend: Extend[State, Decoded],
    objective: Objective[Decoded],
    *,
    codebook: Codebook,
    num_rows: int,
    depth: int,
    gate: Gate[Decoded] | None = None,
    doubt: Doubt[Decoded] | None = None,
    device: torch.device | str = "cpu",
) -> SearchResult[Decoded]:
    """Decodes all V ** depth codes and returns them all, best first; shorter prefixes are never judged."""
    count = len(codebook) ** depth
    if depth < 1 or count > MAX_CODES:
        raise ValueError(f"depth is {depth}, expected at least 1 and at most {MAX_CODES} codes; these are {count}")
    ids = torch.zeros(num_rows, 1, 0, dtype=torch.long, device=device)
    state: State | None = None
    num_decodes = 0
    for _ in range(depth):
        everyone = torch.arange(ids.shape[1], device=device).expand(num_rows, -1)
        ids, parents, tokens = expand(ids, everyone, codebook.values.to(device))
        state, decoded = extend(state, parents, tokens)
        num_decodes += parents.shape[1]
    step = score(decoded, objective, ids=ids, gate=gate, doubt=doubt, beam_width=count)
    return conclude([step], decoded, num_decodes=num_decodes, is_complete=True)
