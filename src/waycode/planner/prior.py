"""The model's prior over codes (ours): how likely each code is in a scene, by what road users have been recorded to do.

The prior is defined for codes of `PRIOR_LEVELS` levels. Axes: R rows (an agent in a scene), K prefixes or codes, n
tokens, V values of a token, C = V ** n codes in the order of `itertools.product`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from waycode.model import Model, PrefixCache, SceneEmbedding
from waycode.model.decoder import PRIOR_LEVELS
from waycode.objectives.candidates import AnyCandidates
from waycode.planner.plan import PlannerError
from waycode.search import Codebook
from waycode.search.beam import MAX_EXHAUSTIVE_CODES


@dataclass(frozen=True, kw_only=True, eq=False)
class CodePrior:
    """Log probabilities in nats of the codes of all rows of an embedding; no gradients."""

    model: Model
    scene: SceneEmbedding

    def __post_init__(self) -> None:
        if not self.model.config.prior:
            raise PlannerError("the model has no prior over codes: expected one trained with `prior` in its config")

    @property
    def codebook(self) -> Codebook:
        return self.model.codebook(PRIOR_LEVELS)

    @torch.no_grad()
    def next_token(self, prefixes: PrefixCache | None) -> Float[Tensor, "R K V"]:
        """Log probabilities of the token after each prefix, by its id; None: after the empty prefix, K = 1."""
        if prefixes is None:
            return self._first_token
        logits = self.model.decoder.prior_logits(prefixes.state, self.scene, lengths=[prefixes.length])
        return logits.log_softmax(dim=-1)

    @torch.no_grad()
    def of_tokens(self, ids: Int[Tensor, "R K n"]) -> Float[Tensor, "R K n"]:
        """Log probability of each token given those before it; the sum over n is that of the code."""
        codes, cache, found = self.codebook.codes(ids), None, []
        for place in range(ids.shape[2]):
            if place:
                cache = self.model.decoder.append(cache, codes[:, :, place - 1 : place], self.scene)
            following = self.next_token(cache).expand(-1, ids.shape[1], -1)
            found.append(following.gather(2, ids[:, :, place, None]))
        return torch.cat(found, dim=2)

    def of_nearest(self, latents: Float[Tensor, "K n D"]) -> Float[Tensor, " K"]:
        """Log probabilities of the codes nearest to the latents of K prefixes of the first row."""
        return self.of_tokens(self.codebook.ids(latents)[None])[0].sum(dim=1)

    def of_longer(
        self,
        before: AnyCandidates | None,
        prefixes: PrefixCache | Tensor | None,
        parents: Int[Tensor, " K"],
        tokens: Float[Tensor, "K D"],
    ) -> Float[Tensor, " K"]:
        """Log probabilities of the candidates of a search in the first row, from those of one token less.

        Args:
            before: the candidates with one token less; None for the first token.
            prefixes: their hidden states.
            parents: which of them each candidate extends.
            tokens: the last token of each candidate.
        """
        following = self.next_token(prefixes if isinstance(prefixes, PrefixCache) else None)[0]
        last = following[parents, self.codebook.ids(tokens)]
        return last if before is None else before.log_probability[parents] + last

    @torch.no_grad()
    def of_all_codes(self, depth: int) -> Float[Tensor, "R C"]:
        """Log probabilities of all codes of `depth` tokens; see `ids_of` for their order."""
        values = self.codebook.values.to(self.scene.velocity_mps)
        rows, count = self.scene.tokens.num_codes, len(values)
        if count**depth > MAX_EXHAUSTIVE_CODES:
            raise PlannerError(
                f"{depth} tokens have {count**depth} codes, expected at most {MAX_EXHAUSTIVE_CODES}: reduce the depth"
            )
        cache: PrefixCache | None = None
        found = self.next_token(None)[:, 0]  # [R, V]
        for _ in range(1, depth):
            if cache is not None:
                parents = torch.arange(cache.state.shape[1], device=values.device).repeat_interleave(count)
                cache = cache.select(parents.expand(rows, -1))
            tokens = values.repeat(found.shape[1] // count, 1).expand(rows, -1, -1)  # the last of each prefix
            cache = self.model.decoder.append(cache, tokens[:, :, None], self.scene)
            found = (found[..., None] + self.next_token(cache)).flatten(1)
        return found

    def ids_of(self, places: Int[Tensor, "*k"], depth: int) -> Int[Tensor, "*k n"]:
        """Token ids of the codes at these places of `of_all_codes(depth)`."""
        count = len(self.codebook)
        return places[..., None] // count ** torch.arange(depth - 1, -1, -1, device=places.device) % count

    @cached_property
    def _first_token(self) -> Float[Tensor, "R 1 V"]:
        config = self.model.config
        # The decoder needs a token; what comes after the empty prefix does not depend on it.
        any_token = self.scene.velocity_mps.new_zeros(self.scene.tokens.num_codes, 1, config.token_dim)
        return self.model.decoder.next_token_logits(any_token, self.scene)[:, :1].log_softmax(dim=-1)


@torch.no_grad()
def draw_in_turn(
    prior: CodePrior, count: int, *, depth: int, seed: int, temperature: float = 1.0
) -> Int[Tensor, "{count} {depth}"]:
    """Token ids of codes drawn from the prior token by token, independently: for codes too many to rate them all.

    Args:
        prior: of a single row.
        count: number of draws.
        depth: number of tokens.
        seed: the same seed draws the same codes; more draws keep the earlier ones.
        temperature: every token is drawn in proportion to its probability to the power of 1 / temperature.
    """
    if not temperature > 0:
        raise PlannerError(f"temperature is {temperature}, expected a number above 0; `most_likely` is the limit at 0")
    chance = np.stack([np.random.default_rng([seed, number]).random(depth) for number in range(count)])  # [K, n]
    cache: PrefixCache | None = None
    ids: list[Tensor] = []
    for place in range(depth):
        if ids:
            tokens = prior.codebook.codes(ids[-1][:, None])  # [K, 1, D]
            cache = prior.model.decoder.append(cache, tokens.to(prior.scene.velocity_mps)[None], prior.scene)
        share = (prior.next_token(cache)[0].double() / temperature).softmax(dim=1).cpu().numpy()  # [K or 1, V]
        cumulative = np.broadcast_to(share.cumsum(axis=1), (count, share.shape[1]))
        drawn = (cumulative < (chance[:, place] * cumulative[:, -1])[:, None]).sum(axis=1)
        ids.append(torch.tensor(drawn, device=prior.scene.velocity_mps.device))
    return torch.stack(ids, dim=1)


def most_likely(log_probability: Float[Tensor, "R C"], count: int) -> Int[Tensor, "R {count}"]:
    """Places of the `count` most likely codes of each row, most likely first; of equal ones, the first."""
    return log_probability.sort(dim=1, descending=True, stable=True).indices[:, :count]


def draw(
    log_probability: Float[Tensor, "R C"], count: int, *, seeds: Sequence[int], temperature: float = 1.0
) -> Int[Tensor, "R {count}"]:
    """Places of codes drawn from the prior, independently and with repetition.

    Args:
        log_probability: of all codes; see `CodePrior.of_all_codes`.
        count: number of draws per row.
        seeds: one per row; draws of a row depend on its seed only.
        temperature: codes are drawn in proportion to their probability to the power of 1 / temperature.
    """
    if not temperature > 0:
        raise PlannerError(f"temperature is {temperature}, expected a number above 0; `most_likely` is the limit at 0")
    cumulative = (log_probability.cpu().double() / temperature).softmax(dim=1).cumsum(dim=1).numpy()
    drawn = [
        np.searchsorted(row, np.random.default_rng(seed).random(count) * row[-1], side="right")
        for row, seed in zip(cumulative, seeds, strict=True)
    ]
    return torch.tensor(np.stack(drawn), device=log_probability.device)
