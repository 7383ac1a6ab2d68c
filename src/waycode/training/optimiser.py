"""AdamW whose steps are orthogonal for the weight matrices of the transformers (ours).

The gradient of a weight matrix has a few large singular values and many small ones: a step along it changes few
directions at a time. The orthogonal step has the same singular vectors, with all values near one, and changes all of
them (known as Muon). All other parameters, such as biases, norms, inputs and outputs, take AdamW's step.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

_MOMENTUM = 0.95
_ITERATIONS = 5
# Of the quintic iteration: the steepest at zero that keeps singular values between about 0.7 and 1.2.
_QUINTIC = (3.4445, -4.7750, 2.0315)
_STEP_SIZE = 0.2  # root mean square of an orthogonal step: that of AdamW, so that both have the same learning rate


def transformer_matrices(model: nn.Module) -> list[nn.Parameter]:
    """The weight matrices inside of transformer layers; the first axes of others than matrices are a batch."""
    inside = (".blocks.", ".layers.")
    return [
        parameter
        for name, parameter in model.named_parameters()
        if parameter.ndim >= 2 and any(part in f".{name}" for part in inside)
    ]


class OrthogonalAdamW(torch.optim.AdamW):
    """AdamW with orthogonal steps for some parameters. A step removes the gradients of these.

    Args:
        parameters: all that are trained.
        orthogonal: those of them whose steps are orthogonal, of two axes or more.
        lr: learning rate of both.
        weight_decay: of both, decoupled from the gradient.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], orthogonal: Iterable[nn.Parameter], *, lr: float, weight_decay: float
    ):
        chosen = list(orthogonal)
        ids = {id(parameter) for parameter in chosen}
        others = [parameter for parameter in parameters if id(parameter) not in ids]
        groups = [{"params": others, "orthogonal": False}, {"params": chosen, "orthogonal": True}]
        super().__init__(groups, lr=lr, weight_decay=weight_decay, fused=True)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of all parameters that have a gradient.

        Args:
            closure: computes the loss and the gradients before the step; its result is returned.
        """
        loss = None if closure is None else closure()
        for group in self.param_groups:
            if group["orthogonal"]:
                self._orthogonal_step(group["params"], lr=group["lr"], weight_decay=group["weight_decay"])
        super().step()  # AdamW leaves alone what has no gradient
        return loss

    @torch.no_grad()
    def _orthogonal_step(self, parameters: list[nn.Parameter], *, lr: float, weight_decay: float) -> None:
        gradients: dict[torch.Size, list[tuple[nn.Parameter, Tensor]]] = defaultdict(list)
        for parameter in parameters:
            if parameter.grad is not None:
                gradients[parameter.shape].append((parameter, parameter.grad))
                parameter.grad = None
        for shape, same_shape in gradients.items():
            towards = []
            for parameter, gradient in same_shape:
                state = self.state[parameter]
                if not state:  # AdamW loads no state without a step
                    state |= {"step": torch.zeros((), device=parameter.device), "momentum": torch.zeros_like(parameter)}
                state["momentum"].lerp_(gradient, 1 - _MOMENTUM)
                towards.append(gradient.lerp(state["momentum"], _MOMENTUM))  # Nesterov's
            steps = orthogonal(torch.stack(towards).flatten(0, -3)).view(len(towards), *shape)
            size = lr * _STEP_SIZE * max(shape[-2:]) ** 0.5  # an orthogonal matrix has a mean square of 1 / max(shape)
            for (parameter, _), step in zip(same_shape, steps, strict=True):
                parameter.mul_(1 - lr * weight_decay).sub_(step, alpha=size)


def orthogonal(matrices: Float[Tensor, "n rows columns"]) -> Float[Tensor, "n rows columns"]:
    """Matrices with the same singular vectors and singular values near one, by Newton-Schulz iterations."""
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if is_tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)
    a, b, c = _QUINTIC
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = a * x + torch.baddbmm(gram, gram, gram, beta=b, alpha=c) @ x
    return x.mT if is_tall else x
