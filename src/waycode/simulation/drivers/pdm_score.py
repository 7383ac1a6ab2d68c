"""PDM-Closed's scorer as an objective, to tell the worth of proposals from that of their judgement."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from waycode.baselines.pdm_closed import PdmConfig, score_proposals
from waycode.driving import Forecast, constant_velocity_forecast
from waycode.driving.collisions import TTC_LOOKS
from waycode.objectives import AtFaultCollision, BaseObjective, Candidates, Setting

PDM_SCORE = "pdm-score"  # its name in the configuration of a driver


@dataclass(frozen=True, kw_only=True)
class PdmScore(BaseObjective):
    """Drive as PDM-Closed's scorer asks: danger (a collision at fault, or another multiplier of 0), then 1 - score.

    Others are forecast at constant velocity, as PDM-Closed does. Progress is relative to the best of the candidates,
    so that costs of candidates compare only if they were evaluated together.
    """

    horizon_s: float = 4.0  # PDM-Closed's

    @property
    def level_names(self) -> tuple[str, ...]:
        return ("danger", "lost-score")

    def __call__(self, candidates: Candidates) -> Float[Tensor, "K 2"]:
        setting, num_steps = candidates.setting, round(self.horizon_s / candidates.dt_s)
        drives = candidates.trajectory.samples(slice(0, num_steps + 1)).at_rear_axle(setting.vehicle)
        scores = score_proposals(
            drives,
            setting.shared(_straight_on, num_steps + TTC_LOOKS[-1]),
            road=setting.road,
            vehicle=setting.vehicle,
            dt_s=candidates.dt_s,
            config=PdmConfig(),
        )
        collision_s = np.minimum(scores.collision_step, num_steps) * candidates.dt_s
        collision = AtFaultCollision(horizon_s=self.horizon_s).cost_at(collision_s)
        danger = np.where(np.isfinite(scores.collision_step), collision, (scores.total == 0).astype(np.float64))
        return torch.from_numpy(np.stack([danger, 1 - scores.total], axis=-1)).to(candidates.position_m.device)


def _straight_on(setting: Setting, num_steps: int) -> Forecast[np.ndarray]:
    return constant_velocity_forecast(setting.scene, setting.agent, num_steps=num_steps, near=setting.state)
