"""Greedy search with kept prefixes beside naive decoding, and how much of it is not the decoder.

python benchmarks/search.py [--model sumo-small] [--rounds 100] [--threads 1]
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from waycode.demo import bundled_dataset
from waycode.features import collate, extract
from waycode.model import MeanAndStd, Model, PrefixCache, PrefixDecoder, SceneEmbedding
from waycode.model.saved import load_model
from waycode.planner import recorded_agents
from waycode.search import SearchResult, beam_search, refine

TARGET_RATIO = 4.0  # naive decoding takes at least so many times as long
TARGET_BOOKKEEPING = 0.10  # of the time of a greedy search, at most
WARM_UP_ROUNDS = 10
REFINE_STEPS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="sumo-small", help="a bundled model or a model's folder")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = load_model(options.model).model
    runs = Runs(model, remember_a_scene(model))
    report(runs, rounds=options.rounds)


@torch.no_grad()
def remember_a_scene(model: Model) -> SceneEmbedding:
    """One agent of the first bundled scene that has one."""
    scene = next(scene for scene in bundled_dataset() if recorded_agents(scene))
    batch = collate([extract(scene, recorded_agents(scene)[:1], config=model.config.features)])
    return model.encode_scene(batch.scene, batch.agents)


class Runs:
    """The ways to one and the same greedy search for a trajectory that ends at a goal."""

    def __init__(self, model: Model, memory: SceneEmbedding):
        self.model, self.memory, self.codebook = model, memory, model.codebook(2)
        self.decode, self.goal_m = PrefixDecoder(model, memory), torch.tensor([30.0, 3.0])
        self.inside_s = 0.0  # the decoder and the objective

    def cost(self, decoded: MeanAndStd) -> Tensor:
        return (decoded[0][:, :, -1] - self.goal_m).norm(dim=-1)

    def search(self, beam_width: int = 1) -> SearchResult[MeanAndStd]:
        return self._search(self.decode, self.cost, beam_width)

    def search_watched(self) -> SearchResult[MeanAndStd]:
        return self._search(self._watched_extend, self._watched_cost, 1)

    def _search(
        self,
        extend: Callable[[PrefixCache | Tensor | None, Tensor, Tensor], tuple[PrefixCache | Tensor, MeanAndStd]],
        cost: Callable[[MeanAndStd], Tensor],
        beam_width: int,
    ) -> SearchResult[MeanAndStd]:
        depth = self.model.config.num_tokens
        return beam_search(extend, cost, codebook=self.codebook, num_rows=1, depth=depth, beam_width=beam_width)

    def _watched_extend(
        self, state: PrefixCache | Tensor | None, parents: Tensor, tokens: Tensor
    ) -> tuple[PrefixCache | Tensor, MeanAndStd]:
        began = time.perf_counter()
        extended = self.decode(state, parents, tokens)
        self.inside_s += time.perf_counter() - began
        return extended

    def _watched_cost(self, decoded: MeanAndStd) -> Tensor:
        began = time.perf_counter()
        cost = self.cost(decoded)
        self.inside_s += time.perf_counter() - began
        return cost

    @torch.no_grad()
    def batched(self) -> list[int]:
        """All candidates of a depth in one call, every token of every prefix computed again."""
        ids: list[int] = []
        for _ in range(self.model.config.num_tokens):
            codes = torch.stack([self._latents([*ids, last]) for last in range(len(self.codebook))])
            ids.append(int(self.cost(self.model.decode(codes[None], self.memory)).argmin()))
        return ids

    @torch.no_grad()
    def naive(self) -> list[int]:
        """A separate decode of the whole prefix for each candidate."""
        ids: list[int] = []
        for _ in range(self.model.config.num_tokens):
            candidates = [self._latents([*ids, last])[None, None] for last in range(len(self.codebook))]
            costs = [float(self.cost(self.model.decode(latents, self.memory))) for latents in candidates]
            ids.append(costs.index(min(costs)))
        return ids

    def _latents(self, ids: list[int]) -> Tensor:
        return self.codebook.codes(torch.tensor(ids))

    def refine(self) -> None:
        seeds = self._latents(self.batched())[None]
        refine(self.decode.decode, lambda decoded: self.cost(decoded)[:, 0], seeds, steps=REFINE_STEPS)


def report(runs: Runs, *, rounds: int) -> None:
    """Rounds go in turn through all ways, so that a busy machine is busy for all of them."""
    assert runs.search().ids[0, 0].tolist() == runs.batched() == runs.naive()
    ways: dict[str, Callable[[], object]] = {
        "greedy, kept prefixes": runs.search,
        "greedy, batched": runs.batched,
        "greedy, naive": runs.naive,
        "beam of 4, kept prefixes": lambda: runs.search(4),
        "beam of 64, kept prefixes": lambda: runs.search(64),
        f"greedy, batched, and {REFINE_STEPS} steps of refinement": runs.refine,
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    shares: list[float] = []
    for count in range(WARM_UP_ROUNDS + rounds):
        for name, run in ways.items():
            seconds[name].append(timed(run))
        runs.inside_s = 0.0
        whole_s = timed(runs.search_watched)
        shares.append(1 - runs.inside_s / whole_s)
        if count == WARM_UP_ROUNDS - 1:
            seconds, shares = {name: [] for name in ways}, []
    print_times(seconds)
    print_targets(seconds, share=statistics.median(shares))


def timed(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def print_times(seconds: dict[str, list[float]]) -> None:
    reference = seconds["greedy, kept prefixes"]
    for name, times in seconds.items():
        best, median, ratio = min(times), statistics.median(times), ratio_of(times, reference)
        print(f"{name:45s} best {1000 * best:7.2f} ms  median {1000 * median:7.2f} ms  {ratio:5.2f} x")


def print_targets(seconds: dict[str, list[float]], *, share: float) -> None:
    ratio = ratio_of(seconds["greedy, naive"], seconds["greedy, kept prefixes"])
    reached = "reached" if ratio >= TARGET_RATIO else "MISSED"
    print(f"naive decoding takes {ratio:.1f} x as long; target {TARGET_RATIO:.0f}: {reached}")
    reached = "reached" if share <= TARGET_BOOKKEEPING else "MISSED"
    print(f"bookkeeping is {share:.1%} of a greedy search; target {TARGET_BOOKKEEPING:.0%}: {reached}")


def ratio_of(times: list[float], reference: list[float]) -> float:
    """The median of the ratios of rounds: each compares runs that followed one another."""
    return statistics.median(time_s / other_s for time_s, other_s in zip(times, reference, strict=True))


if __name__ == "__main__":
    main()
