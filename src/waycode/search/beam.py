"""Greedy, beam and exhaustive search over ordered tokens (paper, section 4).

The search takes a decode callable and a codebook. It does not depend on a network.
Axes: B rows searched at once, K candidates, W kept prefixes (the beam), V codes, n tokens, D, M cost levels.
"""

import time
from collections.abc import Callable
from typing import TypeVar

import torch
from jaxtyping import Int
from torch import Tensor

from waycode.search.codebook import Codebook
from waycode.search.costs import Costs, as_levels, is_finite, lexicographic_order
from waycode.search.result import Decoded, SearchResult, TraceStep, search_result, select_rows

State = TypeVar("State")

# Appends one token to prefixes and decodes them: (state, parents [B, K], tokens [B, K, D]) -> (new state, decoded).
# `parents` are indices of prefixes in `state`; the state is None before the first token.
Extend = Callable[[State | None, Tensor, Tensor], tuple[State, Decoded]]

# Costs of the decoded candidates; see `Costs` for the accepted forms. The lowest cost is best.
CostFunction = Callable[[Decoded], Costs]

# Which candidates to reject [B, K] (bool), given the number of their tokens: the paper's threshold sigma_max(n) on the
# predicted variance depends on it (appendix, "Details on Planning Objective Functions").
Gate = Callable[[Decoded, int], Tensor]

# Breaks ties [B, K]: among candidates of equal cost the one with the lowest value comes first.
TieBreak = Callable[[Decoded], Tensor]

MAX_EXHAUSTIVE_CODES = 2**18  # more codes do not fit into memory with a decoder of useful size


@torch.no_grad()  # not inference_mode: decoded candidates may take part in a later computation with gradients
def beam_search(
    extend: Extend[State, Decoded],
    cost_function: CostFunction[Decoded],
    *,
    codebook: Codebook,
    num_rows: int,
    depth: int,
    beam_width: int = 1,
    gate: Gate[Decoded] | None = None,
    tie_break: TieBreak[Decoded] | None = None,
    deadline_s: float | None = None,
    clock: Callable[[], float] = time.perf_counter,
    device: torch.device | str = "cpu",
) -> SearchResult[Decoded]:
    """Appends every code to every kept prefix, token by token, and keeps the `beam_width` best prefixes.

    Args:
        extend: appends one token to prefixes and decodes them.
        cost_function: costs of decoded candidates; the lowest is best.
        codebook: the values that a token can take.
        num_rows: number of independent searches (B) that run at once.
        depth: number of tokens to find.
        beam_width: number of prefixes kept after each token; 1 is greedy search.
        gate: candidates to rank behind all accepted ones. None accepts every candidate.
        tie_break: order among candidates of equal cost. None keeps the order of enumeration.
        deadline_s: time limit, counted from the call. The search stops before a depth that would exceed it. The first
            depth always runs, so that there is always a result.
        clock: the time source, in seconds.
        device: device of token ids and codes.
    """
    if depth < 1 or beam_width < 1:
        raise ValueError(f"depth is {depth} and beam_width {beam_width}, expected at least 1 of each")
    if deadline_s is not None and not deadline_s >= 0:
        raise ValueError(f"deadline_s is {deadline_s}, expected 0 or more seconds, or None for no deadline")
    began = now = clock()
    ids = torch.zeros(num_rows, 1, 0, dtype=torch.long, device=device)  # one empty prefix
    kept = torch.zeros(num_rows, 1, dtype=torch.long, device=device)  # indices of the prefixes in the state
    values = codebook.values.to(device)
    state: State | None = None
    steps: list[TraceStep] = []
    num_decodes = 0
    while len(steps) < depth:
        ids, parents, tokens = _append_codes(ids, kept, values)
        state, decoded = extend(state, parents, tokens)
        num_decodes += parents.shape[1]
        steps.append(_rank(decoded, cost_function, ids=ids, gate=gate, tie_break=tie_break, beam_width=beam_width))
        kept = steps[-1].chosen
        ids = select_rows(ids, kept)
        depth_began, now = now, clock()
        # Time per depth grows at most in proportion to the number of candidates.
        predicted_s = (now - depth_began) * kept.shape[1] * len(codebook) / parents.shape[1]
        if deadline_s is not None and now + predicted_s > began + deadline_s:
            break
    return search_result(steps, decoded, num_decodes=num_decodes, is_complete=len(steps) == depth)


@torch.no_grad()
def exhaustive_search(
    extend: Extend[State, Decoded],
    cost_function: CostFunction[Decoded],
    *,
    codebook: Codebook,
    num_rows: int,
    depth: int,
    gate: Gate[Decoded] | None = None,
    tie_break: TieBreak[Decoded] | None = None,
    device: torch.device | str = "cpu",
) -> SearchResult[Decoded]:
    """Decodes all V ** depth codes and returns them all, best first. Shorter prefixes are not evaluated.

    Args: as for `beam_search`.
    """
    count = len(codebook) ** depth
    if depth < 1 or count > MAX_EXHAUSTIVE_CODES:
        raise ValueError(
            f"depth is {depth}, which gives {count} codes; expected a depth of at least 1 and at most "
            f"{MAX_EXHAUSTIVE_CODES} codes"
        )
    ids = torch.zeros(num_rows, 1, 0, dtype=torch.long, device=device)
    state: State | None = None
    num_decodes = 0
    for _ in range(depth):
        every_prefix = torch.arange(ids.shape[1], device=device).expand(num_rows, -1)
        ids, parents, tokens = _append_codes(ids, every_prefix, codebook.values.to(device))
        state, decoded = extend(state, parents, tokens)
        num_decodes += parents.shape[1]
    step = _rank(decoded, cost_function, ids=ids, gate=gate, tie_break=tie_break, beam_width=count)
    return search_result([step], decoded, num_decodes=num_decodes, is_complete=True)


def _append_codes(ids: Tensor, kept: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Appends each code [V, D] to each prefix [B, W, n]: ids [B, W * V, n + 1], parents [B, W * V], tokens [.., D]."""
    (num_rows, width, length), num_codes = ids.shape, len(values)
    shape = (num_rows, width, num_codes)
    last = torch.arange(num_codes, device=ids.device).view(num_codes, 1).expand(*shape, 1)
    longer = torch.cat([ids.unsqueeze(2).expand(*shape, length), last], dim=3).flatten(1, 2)
    return longer, kept.unsqueeze(2).expand(shape).flatten(1), values.expand(*shape, -1).flatten(1, 2)


def _rank(
    decoded: Decoded,
    cost_function: CostFunction[Decoded],
    *,
    ids: Int[Tensor, "B K n"],
    gate: Gate[Decoded] | None,
    tie_break: TieBreak[Decoded] | None,
    beam_width: int,
) -> TraceStep:
    """Orders candidates: accepted before rejected before those without a finite cost; within each by cost.

    The gate is a separate level, not a large penalty as in the paper: no cost can outweigh it.
    """
    num_rows, num_candidates, num_tokens = ids.shape
    costs = as_levels(cost_function(decoded), num_rows=num_rows, num_candidates=num_candidates).to(ids.device)
    usable = is_finite(costs)
    rejected = torch.zeros_like(usable) if gate is None else gate(decoded, num_tokens)
    if rejected.dtype != torch.bool or rejected.shape != (num_rows, num_candidates):
        got = f"{str(rejected.dtype).removeprefix('torch.')} of shape {list(rejected.shape)}"
        raise ValueError(f"the gate returned {got}, expected bool of shape [{num_rows}, {num_candidates}]")
    acceptance = rejected.long().masked_fill_(~usable, 2)  # 0 accepted, 1 rejected, 2 without a finite cost
    order = lexicographic_order(costs, first=acceptance, last=None if tie_break is None else tie_break(decoded))
    return TraceStep(ids=ids, costs=costs, rejected=rejected, usable=usable, order=order, beam_width=beam_width)
