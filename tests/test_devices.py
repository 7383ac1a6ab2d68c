"""No tensor is made on a device that was not asked for.

There is no GPU here. Instead the *default* device is `meta`, while models and inputs are on the CPU: a tensor that is
made without the device of its inputs is then a meta tensor, and the first operation that mixes the two fails, as it
would between CPU and GPU.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch

from driving_scenes import sample_scenes
from tiny_model import batch_of, futures_of, tiny_config, tiny_model
from waycode.model import PrefixDecoder
from waycode.objectives import DRIVING_OBJECTIVE, OBJECTIVES
from waycode.planner import Planner
from waycode.training.config import NestedDropout, tiny
from waycode.training.module import AutoencoderModule

ARGUMENTS = {
    "speed-profile": "speed-profile([0, 8], [5, 5])",
    "stop-at": "stop-at(distance_m=10)",
    "goal-point": "goal-point(20, 0, frame=agent)",
}


@pytest.fixture(scope="module")
def planner() -> Planner:
    return Planner.from_pretrained("sumo-small")


def test_the_check_can_fail() -> None:
    values = torch.zeros(3)
    with torch.device("meta"), pytest.raises((RuntimeError, NotImplementedError)):
        (values + torch.arange(3)).sum().item()


@pytest.mark.parametrize("name", [*(name for name, kind in OBJECTIVES.items() if kind.scope != "agents"), "driving"])
def test_planning(planner: Planner, name: str) -> None:
    scene = sample_scenes(1)[0]
    objective = DRIVING_OBJECTIVE if name == "driving" else ARGUMENTS.get(name, name)
    with torch.device("meta"):
        plan = planner.encode(scene).plan(objective, beam_width=2)
    assert plan.tokens is not None


def test_refining_decoding_and_encoding(planner: Planner) -> None:
    with torch.device("meta"):
        view = planner.encode(sample_scenes(1)[0])
        plan = view.plan("route-following then comfort", refine_steps=2)
        assert len(view.candidates(3)) == 3
        assert view.decode(view.encode_trajectory()).depth == 3
    assert plan.depth == 3


@pytest.mark.parametrize("changes", [{}, {"causal": False}, {"spline_points": None}, {"scene_layers": 0}], ids=str)
def test_all_parts_of_the_model(changes: dict[str, Any]) -> None:
    """With a selection of tokens, scenes of different numbers of agents, and one row of the embedding."""
    model, config = tiny_model(**changes), tiny_config(**changes)
    batch = batch_of(*sample_scenes(2), agents=2, config=config.features)
    mask = torch.tensor([[True, True], [False, True]])
    batch = replace(batch, agents=replace(batch.agents, mask=mask))
    first = torch.zeros(3, 4, dtype=torch.long)
    with torch.device("meta"):
        embedding = model.encode_scene(batch.scene, batch.agents)
        latents = model.encode(*futures_of(batch), embedding)
        mean, _ = model.decoder.decode_all_prefixes(latents, embedding)
        if config.prior:
            _, prior = model.decoder.decode_with_prior(latents, embedding)
            assert prior.device.type == "cpu"
        alone, _ = model.decode(latents[2:, None], embedding.only(2))
        decode = PrefixDecoder(model, embedding)
        state, _ = decode(None, first, latents[:, :1].expand(-1, 4, -1))
        searched, _ = decode(state, first, latents[:, 1:2].expand(-1, 4, -1))[1]
        refined, _ = decode.decode(latents)
    assert {part.device.type for part in (mean, alone, searched, refined)} == {"cpu"}
    torch.testing.assert_close(alone[0, 0], mean[2, -1], atol=1e-3, rtol=1e-4)
    torch.testing.assert_close(searched[:, 3], mean[:, 1], atol=1e-3, rtol=1e-4)


def test_a_training_step_with_every_loss() -> None:
    config = tiny()
    module = AutoencoderModule(
        replace(
            config,
            path_weight=1.0,
            acceleration_weight=1.0,
            collision_weight=1.0,
            realism_weight=1.0,
            history_dropout=0.5,
            nested_dropout=NestedDropout.SAMPLED,
            noise=replace(config.noise, rounded_share=0.5),
        )
    )
    batch = batch_of(*sample_scenes(2), agents=2, config=config.model.features)
    with torch.device("meta"):
        loss = module.training_step(batch, 0)["loss"]
        torch.autograd.backward([loss])
    assert torch.isfinite(loss)
