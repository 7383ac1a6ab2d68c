"""Greedy and beam search over ordered tokens (paper, section 4). Knows a decode callable and a codebook, no network.

Axes: B rows that are searched at once, K candidates, W kept prefixes (the beam), V codes, n tokens, D, M cost levels.
"""

import time
from collections.abc import Callable

import torch
from torch import Tensor

from waycode.search.codebook import Codebook
from waycode.search.result import SearchResult, conclude, take
from waycode.search.scoring import Decoded, Doubt, Extend, Gate, Objective, State, score
from waycode.search.trace import TraceStep


@torch.no_grad()  # not inference_mode: what was decoded may go on into a computation with gradients
def beam_search(
    extend: Extend[State, Decoded],
    objective: Objective[Decoded],
    *,
    codebook: Codebook,
    num_rows: int,
    depth: int,
    beam_width: int = 1,
    gate: Gate[Decoded] | None = None,
    doubt: Doubt[Decoded] | None = None,
    deadline_s: float | None = None,
    clock: Callable[[], float] = time.perf_counter,
    device: torch.device | str = "cpu",
) -> SearchResult[Decoded]:
    """Token by token, tries every code behind every kept prefix and keeps the `beam_width` best; 1 is greedy search.

    The objective maps what was decoded to costs (see `Costs`); the least is best, and of those that cost the same the
    least doubtful. Candidates that the gate rejects come after all that it accepts. With a deadline, counted from the
    call, the search stops before a depth that would not end in time; the first is always finished, so that there is
    always a result.
    """
    _check(depth=depth, beam_width=beam_width, deadline_s=deadline_s)
    began = now = clock()
    ids = torch.zeros(num_rows, 1, 0, dtype=torch.long, device=device)  # one empty prefix
    kept = torch.zeros(num_rows, 1, dtype=torch.long, device=device)  # where the prefixes are in the state
    values = codebook.values.to(device)
    state: State | None = None
    steps: list[TraceStep] = []
    num_decodes = 0
    while len(steps) < depth:
        ids, parents, tokens = expand(ids, kept, values)
        state, decoded = extend(state, parents, tokens)
        num_decodes += parents.shape[1]
        steps.append(score(decoded, objective, ids=ids, gate=gate, doubt=doubt, beam_width=beam_width))
        kept = steps[-1].chosen
        ids = take(ids, kept)
        depth_began, now = now, clock()
        # The next depth has other candidates in number; they take time at most in proportion.
        predicted_s = (now - depth_began) * kept.shape[1] * len(codebook) / parents.shape[1]
        if deadline_s is not None and now + predicted_s > began + deadline_s:
            break
    return conclude(steps, decoded, num_decodes=num_decodes, is_complete=len(steps) == depth)


def expand(ids: Tensor, kept: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Every code [V, D] behind every prefix [B, W, n]: longer prefixes [B, K, n + 1], their parents and last tokens."""
    (num_rows, width, length), num_codes = ids.shape, len(values)
    shape = (num_rows, width, num_codes)
    last = torch.arange(num_codes, device=ids.device).view(num_codes, 1).expand(*shape, 1)
    longer = torch.cat([ids.unsqueeze(2).expand(*shape, length), last], dim=3).flatten(1, 2)
    return longer, kept.unsqueeze(2).expand(shape).flatten(1), values.expand(*shape, -1).flatten(1, 2)


def _check(*, depth: int, beam_width: int, deadline_s: float | None) -> None:
    if depth < 1 or beam_width < 1:
        raise ValueError(f"depth is {depth} and beam_width {beam_width}, expected at least 1 of each")
    if deadline_s is not None and not deadline_s >= 0:
        raise ValueError(f"deadline_s is {deadline_s}, expected 0 or more seconds, or None for no deadline")
