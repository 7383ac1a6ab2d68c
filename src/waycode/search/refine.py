"""Gradient descent on the tokens that a search has found (paper, section 4 and appendix "Gradient-Based Token
Optimization"): continuous values in place of the codes, from a seed that is good already.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from waycode.search.scoring import Decoded

DECAY, SQUARED_DECAY, EPSILON = 0.9, 0.999, 1e-8  # Adam's usual ones


@dataclass(frozen=True, kw_only=True)
class RefineResult:
    """The best latents that were seen, the first ones included; never costlier than these."""

    latents: Float[Tensor, "B n D"]
    cost_before: Float[Tensor, " B"]
    cost_after: Float[Tensor, " B"]
    steps: int  # that were made; fewer than asked for if every row had to stop, or if the time was up


def refine(
    decode: Callable[[Tensor], Decoded],
    objective: Callable[[Decoded], Tensor],
    latents: Float[Tensor, "B n D"],
    *,
    steps: int,
    learning_rate: float = 0.1,
    deadline_s: float | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> RefineResult:
    """Lowers the objective [B] of what latents [B, n, D] decode to, by Adam, within [-1, 1].

    Rows go apart, as long as `decode` and `objective` keep them apart. One whose cost or gradient is not finite stops
    where it is best so far. The paper makes 5 to 40 steps. With a deadline, counted from the call, it ends before a
    step that would not end in time; the start is always looked at.
    """
    _check(steps=steps, learning_rate=learning_rate, deadline_s=deadline_s)
    began = now = clock()
    with torch.inference_mode(False), torch.enable_grad():
        current = latents.detach().clone().clamp_(-1, 1)
        cost, gradient = _slope(decode, objective, current, is_last=steps == 0)
        cost_before, best, lowest = cost, current, cost
        running = cost.isfinite() & _is_finite(gradient)
        adam, made = _Adam(current, learning_rate), 0
        while made < steps and bool(running.any()):
            step_began, now = now, clock()
            if deadline_s is not None and now + (now - step_began) > began + deadline_s:  # a step takes as the last did
                break
            step = adam.step(gradient.where(running[:, None, None], 0))
            current = (current - step).clamp(-1, 1).where(running[:, None, None], current)
            cost, gradient = _slope(decode, objective, current, is_last=made + 1 == steps)
            is_better = running & (cost < lowest)  # false for what is not a number
            best, lowest = current.where(is_better[:, None, None], best), cost.where(is_better, lowest)
            running = running & cost.isfinite() & _is_finite(gradient)
            made += 1
    return RefineResult(latents=best, cost_before=cost_before, cost_after=lowest, steps=made)


def _slope(
    decode: Callable[[Tensor], Decoded],
    objective: Callable[[Decoded], Tensor],
    latents: Tensor,
    *,
    is_last: bool = False,
) -> tuple[Tensor, Tensor]:
    """Cost [B] and gradient [B, n, D] of each row; the last latents need no gradient, which is a third of the work."""
    latents = latents.detach().requires_grad_(not is_last)
    with torch.set_grad_enabled(not is_last):
        cost = objective(decode(latents))
    if cost.shape != latents.shape[:1]:
        raise ValueError(f"the objective returned costs of shape {list(cost.shape)}, expected [{len(latents)}]")
    if is_last:
        return cost.detach(), torch.zeros_like(latents)
    gradient = None
    if cost.requires_grad:
        (gradient,) = torch.autograd.grad(cost.sum(), latents, allow_unused=True)
    if gradient is None:
        raise ValueError("the objective has no gradient with respect to the latents, expected a differentiable one")
    return cost.detach(), gradient


def _check(*, steps: int, learning_rate: float, deadline_s: float | None) -> None:
    if steps < 0 or not learning_rate > 0:
        raise ValueError(f"steps is {steps} and learning_rate {learning_rate}, expected 0 or more and above 0")
    if deadline_s is not None and not deadline_s >= 0:
        raise ValueError(f"deadline_s is {deadline_s}, expected 0 or more seconds, or None for no deadline")


def _is_finite(gradient: Float[Tensor, "B n D"]) -> Bool[Tensor, " B"]:
    return gradient.isfinite().flatten(1).all(dim=1)


class _Adam:
    """Adam (Kingma and Ba, 2015); torch.optim's takes 2 s to import what it needs when it is first called."""

    def __init__(self, like: Tensor, learning_rate: float):
        self.mean, self.square = torch.zeros_like(like), torch.zeros_like(like)
        self.learning_rate, self.count = learning_rate, 0

    def step(self, gradient: Tensor) -> Tensor:
        """What to subtract."""
        self.count += 1
        self.mean = DECAY * self.mean + (1 - DECAY) * gradient
        self.square = SQUARED_DECAY * self.square + (1 - SQUARED_DECAY) * gradient**2
        mean, square = self.mean / (1 - DECAY**self.count), self.square / (1 - SQUARED_DECAY**self.count)
        return self.learning_rate * mean / (square.sqrt() + EPSILON)
