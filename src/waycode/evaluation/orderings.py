"""What must be true of a reconstruction table if the code is ordered, discrete and searchable (paper, section 5.1)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

ENCODER_2, ENCODER_3, CONTINUOUS = "encoder N_l = 2", "encoder N_l = 3", "encoder continuous"
GREEDY_2, GREEDY_3 = "greedy N_l = 2", "greedy N_l = 3"

Table = Mapping[str, Sequence[float]]  # ADE per column, for 1, 2, ... tokens

_BETTER_THAN = {
    "greedy search beats the quantised encoder": ((GREEDY_2, ENCODER_2), (GREEDY_3, ENCODER_3)),
    "three levels beat two": ((ENCODER_3, ENCODER_2), (GREEDY_3, GREEDY_2)),
    "continuous beats quantised": ((CONTINUOUS, ENCODER_2), (CONTINUOUS, ENCODER_3)),
}


@dataclass(frozen=True)
class Ordering:
    """One claim about the table, and the places where it does not hold."""

    claim: str
    breaks: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not self.breaks


def check_orderings(table: Table) -> list[Ordering]:
    """All claims that the columns of the table allow to check; equal numbers break a claim."""
    found = [Ordering("more tokens are better in every column", tuple(_not_falling(table)))]
    for claim, pairs in _BETTER_THAN.items():
        there = [(better, worse) for better, worse in pairs if better in table and worse in table]
        if there:
            breaks = tuple(phrase for better, worse in there for phrase in _not_better(table, better, worse))
            found.append(Ordering(claim, breaks))
    return found


def _not_falling(table: Table) -> Iterator[str]:
    for name, column in table.items():
        for tokens, (before, after) in enumerate(pairwise(column), start=1):
            if not after < before:
                yield f"{name}: {before:.3f} m with {tokens}, {after:.3f} m with {tokens + 1} tokens"


def _not_better(table: Table, better: str, worse: str) -> Iterator[str]:
    for tokens, (good, bad) in enumerate(zip(table[better], table[worse], strict=True), start=1):
        if not good < bad:
            yield f"{tokens} tokens: {better} {good:.3f} m, {worse} {bad:.3f} m"
