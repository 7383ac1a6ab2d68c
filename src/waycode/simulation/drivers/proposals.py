"""Where the trajectories of a step come from: latent search, other ways to choose codes, or rules without a model.

Comparing them under one policy and one judge tells what the tokens are worth (`waycode eval proposals`).
"""

from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from waycode.baselines import ConstantVelocity, PdmConfig
from waycode.baselines.pdm_closed import centreline_proposals
from waycode.driving import Observation, Road, Trajectory, constant_velocity_forecast
from waycode.model.decoder import PRIOR_LEVELS
from waycode.objectives import Candidates
from waycode.planner import View
from waycode.planner.ranking import too_uncertain
from waycode.simulation.drivers.policy import Evaluator, Judged

# Latent search; codes drawn from the model's prior; all codes; PDM-Closed's proposals; straight on.
Proposals = Literal["search", "samples", "all-codes", "centreline", "constant-velocity"]
WITHOUT_MODEL: tuple[Proposals, ...] = ("centreline", "constant-velocity")

_NUM_SAMPLES = 40  # as many as a search with beam 2 and 3 tokens decodes


@dataclass(frozen=True, kw_only=True)
class SimulatedCost:
    """The cost of what the tracker makes of candidates, as the objective of a search; keeps all that it has judged."""

    evaluate: Evaluator
    view: View
    judged: list[Judged] = field(default_factory=list)  # without those that the model is uncertain of

    def __call__(self, candidates: Candidates) -> Float[Tensor, "K M"]:
        found = self.evaluate.judge(candidates.trajectory)
        certain = ~too_uncertain(candidates, self.view.gate).cpu().numpy()
        if certain.any():
            self.judged.append(found.select(certain))
        return torch.from_numpy(found.levels)


def search_proposals(
    view: View, evaluate: Evaluator, *, depth: int, beam_width: int, levels: int, deadline_s: float | None
) -> list[Judged]:
    """All codes that a search has decoded, of one token and of more: a deeper search never has fewer to choose from.

    Args:
        view: the scene, encoded for the ego.
        evaluate: simulates and judges, for the search too.
        depth, beam_width, levels, deadline_s: as for `View.beam`.
    """
    cost = SimulatedCost(evaluate=evaluate, view=view)
    view.beam(cost, depth=depth, beam_width=beam_width, levels=levels, deadline_s=deadline_s, explain=False)
    return cost.judged


def sampled_proposals(view: View, evaluate: Evaluator, *, depth: int) -> list[Judged]:
    """Codes drawn from the model's prior, as many as a search decodes, without those drawn again."""
    cost, codebook = SimulatedCost(evaluate=evaluate, view=view), view.model.codebook(PRIOR_LEVELS)
    drawn = {plan.tokens for plan in view.sample(_NUM_SAMPLES, depth=depth)}
    cost(view.decode_many(codebook.codes(torch.tensor(sorted(drawn)))))
    return cost.judged


def rule_based_proposals(
    kind: Literal["centreline", "constant-velocity"], observation: Observation, road: Road, evaluate: Evaluator
) -> list[Judged]:
    """PDM-Closed's fifteen proposals, or driving straight on at the current speed.

    Args:
        kind: which of them.
        observation: the world now.
        road: the ego's route.
        evaluate: simulates and judges.
    """
    if kind == "constant-velocity":
        trajectory, _ = ConstantVelocity().plan(None, observation)
        return [evaluate.judge(Trajectory.stack([trajectory]))]
    config = PdmConfig(smooths_route=True)  # the road that the judges use
    others = constant_velocity_forecast(
        observation.scene, observation.agent, num_steps=config.num_steps(observation.scene.dt_s), near=observation.ego
    )
    proposals = centreline_proposals(observation, road, others, config)
    return [evaluate.judge(proposals.at_centre(observation.vehicle))]
