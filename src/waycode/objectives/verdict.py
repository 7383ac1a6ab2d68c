"""`Verdict`: whether a trajectory does what an objective asks for, as a value and as a sentence."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What one trajectory achieves of an objective."""

    satisfied: bool | None = None  # None: the objective has no notion of it, such as a likelihood
    sentence: str = ""  # what the trajectory does, with numbers; "" if there is nothing to say
    violated: bool = False  # a constraint given by `where` is not kept


def combined(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict of all parts of an objective: satisfied if no part is missed; the sentences of missed parts first."""
    known = [verdict.satisfied for verdict in verdicts if verdict.satisfied is not None]
    missed_first = sorted(verdicts, key=lambda verdict: verdict.satisfied is not False)
    return Verdict(
        satisfied=all(known) if known else None,
        sentence="; ".join(dict.fromkeys(verdict.sentence for verdict in missed_first if verdict.sentence)),
        violated=any(verdict.violated for verdict in verdicts),
    )


def as_constraint(verdict: Verdict) -> Verdict:
    """The verdict of an objective that is a constraint: if it is missed, the constraint is violated."""
    if verdict.satisfied is not False:
        return verdict
    return Verdict(satisfied=False, sentence=f"constraint violated: {verdict.sentence}", violated=True)
