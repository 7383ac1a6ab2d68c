"""Gradient-based refinement of a found code (paper, section 4 and appendix "Gradient-Based Token Optimization").

Refinement moves the latents continuously, off the codebook's levels, starting from a code that search has found.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim.adam import adam  # the functional form: constructing torch.optim.Adam takes 1.5 s in a new process

from waycode.search.result import Decoded


@dataclass(frozen=True, kw_only=True)
class RefineResult:
    """The visited latents of lowest cost; the start counts as visited."""

    latents: Float[Tensor, "B n D"]
    cost_before: Float[Tensor, " B"]
    cost_after: Float[Tensor, " B"]  # never above cost_before
    steps: int  # steps made; fewer than requested if every row stopped or the deadline was reached


def refine(
    decode: Callable[[Tensor], Decoded],
    cost_function: Callable[[Decoded], Tensor],
    latents: Float[Tensor, "B n D"],
    *,
    steps: int,
    learning_rate: float = 0.1,
    deadline_s: float | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> RefineResult:
    """Lowers the cost of decoded latents by Adam, within [-1, 1].

    Rows are independent if `decode` and `cost_function` treat them independently. A row whose cost or gradient is not
    finite stops and keeps its best latents so far.

    Args:
        decode: decodes latents [B, n, D], with gradients.
        cost_function: cost [B] of the decoded latents, with gradients.
        latents: the start.
        steps: number of gradient steps; the paper uses 5 to 40.
        learning_rate: of Adam.
        deadline_s: time limit, counted from the call. Refinement stops before a step that would exceed it.
        clock: the time source, in seconds.
    """
    if steps < 0 or not learning_rate > 0:
        raise ValueError(f"steps is {steps} and learning_rate {learning_rate}, expected 0 or more and above 0")
    if deadline_s is not None and not deadline_s >= 0:
        raise ValueError(f"deadline_s is {deadline_s}, expected 0 or more seconds, or None for no deadline")
    began = now = clock()
    with torch.inference_mode(False), torch.enable_grad():
        current = latents.detach().clone().clamp_(-1, 1)
        mean, square, count = (
            torch.zeros_like(current),
            torch.zeros_like(current),
            torch.tensor(0.0, device="cpu"),
        )  # Adam's state
        cost, gradient = _cost_and_gradient(decode, cost_function, current, needs_gradient=steps > 0)
        cost_before, best, lowest = cost, current, cost
        running = cost.isfinite() & gradient.isfinite().flatten(1).all(dim=1)
        made = 0
        while made < steps and bool(running.any()):
            step_began, now = now, clock()
            if deadline_s is not None and now + (now - step_began) > began + deadline_s:  # predict from the last step
                break
            moving = running[:, None, None]
            proposed = current.clone()
            adam(
                [proposed], [gradient.where(moving, 0)], [mean], [square], [], [count],
                lr=learning_rate, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, amsgrad=False, maximize=False,
                foreach=False,
            )  # fmt: skip
            current = proposed.clamp_(-1, 1).where(moving, current)
            cost, gradient = _cost_and_gradient(decode, cost_function, current, needs_gradient=made + 1 < steps)
            is_better = running & (cost < lowest)  # false for NaN
            best, lowest = current.where(is_better[:, None, None], best), cost.where(is_better, lowest)
            running = running & cost.isfinite() & gradient.isfinite().flatten(1).all(dim=1)
            made += 1
    return RefineResult(latents=best, cost_before=cost_before, cost_after=lowest, steps=made)


def _cost_and_gradient(
    decode: Callable[[Tensor], Decoded],
    cost_function: Callable[[Decoded], Tensor],
    latents: Tensor,
    *,
    needs_gradient: bool = True,
) -> tuple[Tensor, Tensor]:
    """Cost [B] and gradient [B, n, D] of each row; the last latents need none, which saves the backward pass."""
    latents = latents.detach().requires_grad_(needs_gradient)
    with torch.set_grad_enabled(needs_gradient):
        cost = cost_function(decode(latents))
    if cost.shape != latents.shape[:1]:
        raise ValueError(f"the objective returned costs of shape {list(cost.shape)}, expected [{len(latents)}]")
    if not needs_gradient:
        return cost.detach(), torch.zeros_like(latents)
    gradient = None
    if cost.requires_grad:
        (gradient,) = torch.autograd.grad(cost.sum(), latents, allow_unused=True)
    if gradient is None:
        raise ValueError("the objective has no gradient with respect to the latents, expected a differentiable one")
    return cost.detach(), gradient
