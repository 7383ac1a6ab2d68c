"""The search of a view: over the decoder's prefixes, ranked by an objective and the gate."""

from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor

from waycode.model import PrefixCache, PrefixDecoder, VarianceGate
from waycode.model.decoder import PRIOR_LEVELS
from waycode.objectives import Objective
from waycode.objectives.candidates import AnyCandidates
from waycode.planner.ranking import checked_costs, too_uncertain
from waycode.search import SearchResult, beam_search

if TYPE_CHECKING:
    from waycode.planner.view import View


def search_view(
    view: "View",
    objective: Objective,
    depth: int,
    *,
    beam_width: int,
    levels: int,
    limits: VarianceGate | None,
    by_certainty: bool,
    deadline_s: float | None,
) -> tuple[SearchResult[AnyCandidates], list[AnyCandidates]]:
    """Beam search over the decoder's prefixes; its result, and the candidates of each depth.

    Args:
        view: the encoded scene.
        objective, depth, beam_width, levels, by_certainty, deadline_s: as for `View.plan`.
        limits: the gate; None: no gate.
    """
    decode = PrefixDecoder(view.model, view.embedding)
    seen: list[AnyCandidates] = []

    def extend(
        state: tuple[PrefixCache | Tensor, AnyCandidates] | None, parents: Tensor, tokens: Tensor
    ) -> tuple[tuple[PrefixCache | Tensor, AnyCandidates], AnyCandidates]:
        prefix, before = (None, None) if state is None else state
        longer, decoded = decode(prefix, parents, tokens)
        length = 1 if before is None else before.num_tokens + 1
        rate = None
        if view.model.config.prior and levels == PRIOR_LEVELS:
            rate = partial(view.prior.of_longer, before, prefix, parents[0], tokens[0])
        candidates = view.candidates_of(decoded, num_tokens=length, prior=rate)
        seen.append(candidates)
        return (longer, candidates), candidates

    found = beam_search(
        extend,
        lambda candidates: checked_costs(objective, candidates),
        codebook=view.model.codebook(levels),
        num_rows=1,
        depth=depth,
        beam_width=beam_width,
        gate=None if limits is None else lambda candidates, _: too_uncertain(candidates, limits)[None],
        tie_break=(lambda candidates: candidates.final_std_m[None]) if by_certainty else None,
        deadline_s=deadline_s,
        clock=view.clock,
        device=view.embedding.velocity_mps.device,
    )
    return found, seen
