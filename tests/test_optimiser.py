"""The optimiser with orthogonal steps: what a step is, for which weights, and that it can be resumed."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from waycode.model import Model
from waycode.training.config import tiny
from waycode.training.optimiser import OrthogonalAdamW, orthogonal, transformer_matrices


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 5, 20), (2, 20, 5), (1, 1, 7)])
def test_orthogonal_matrices_keep_their_singular_vectors(shape: tuple[int, int, int]) -> None:
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    values = (left.mT @ orthogonal(matrices) @ right.mT).diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(left * values[:, None] @ right, orthogonal(matrices), atol=1e-4, rtol=0)
    assert 0.3 < float(values.min()) <= float(values.max()) < 1.3


def test_a_gradient_of_zero_is_no_step() -> None:
    assert not orthogonal(torch.zeros(2, 4, 6)).any()


def test_only_matrices_inside_of_transformers_are_orthogonal() -> None:
    model = Model(tiny().model)
    chosen = {id(parameter) for parameter in transformer_matrices(model)}
    names = {name for name, parameter in model.named_parameters() if id(parameter) in chosen}
    assert "decoder.blocks.0.attend_scene.query.weight" in names
    assert "scene_encoder.layers.0.feed_forward.layers.0.weight" in names
    assert not {"decoder.head.2.weight", "decoder.embed_latent.weight", "trajectory_encoder.project.weight"} & names
    assert not [name for name in names if name.endswith("bias")]


def test_other_parameters_take_the_steps_of_adamw() -> None:
    ours, theirs = _network(), _network()
    optimiser = OrthogonalAdamW(ours.parameters(), [], lr=0.01, weight_decay=0.1)
    reference = torch.optim.AdamW(theirs.parameters(), lr=0.01, weight_decay=0.1, fused=True)
    for _ in range(5):
        _step(ours, optimiser)
        _step(theirs, reference)
    for mine, its in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, its, atol=0, rtol=0)


def test_the_loss_falls_and_a_resumed_run_is_the_same() -> None:
    network = _network()
    optimiser = OrthogonalAdamW(network.parameters(), _matrices(network), lr=0.01, weight_decay=0.0)
    first = [_step(network, optimiser) for _ in range(5)]
    other = deepcopy(network)
    resumed = OrthogonalAdamW(other.parameters(), _matrices(other), lr=0.5, weight_decay=0.5)
    resumed.load_state_dict(deepcopy(optimiser.state_dict()))
    later = [_step(network, optimiser) for _ in range(30)]
    assert [_step(other, resumed) for _ in range(30)] == later
    assert later[-1] < 0.5 * first[0]


def _network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2))


def _matrices(network: nn.Sequential) -> list[nn.Parameter]:
    return [parameter for name, parameter in network.named_parameters() if name == "2.weight"]


def _step(network: nn.Sequential, optimiser: torch.optim.Optimizer) -> float:
    inputs = torch.linspace(-1, 1, 32).view(8, 4)
    loss = (network(inputs) - inputs[:, :2].square()).square().mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return float(loss.detach())
