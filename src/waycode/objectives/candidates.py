"""The argument of every objective: `Candidates`, K trajectories of one agent, or `JointCandidates`, of several."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from waycode.driving.trajectory import Trajectory
from waycode.objectives.setting import ObjectiveError, Setting, SharedResults

# A shorter step keeps the heading of the step before. Recorded positions are rounded to 1 mm: on steps of 1 cm this
# error alone causes curvatures of 5 / m, on steps of 10 cm (1 m/s at 10 Hz) of 0.2 / m at most.
_MIN_HEADING_STEP_M = 0.1


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidates(SharedResults):
    """K trajectories of one agent over the T steps after the current one, in the scene frame.

    All tensors below but `log_probability` have gradients with respect to `position_m` and `std_m`.
    """

    position_m: Float[Tensor, "K T 2"]
    std_m: Float[Tensor, "K T 2"]  # along and across the agent's heading at the current step
    num_tokens: int  # number of tokens the trajectories were decoded from; 0 if they were not decoded
    dt_s: float  # time between steps
    setting: Setting  # the agent and its surroundings
    prior: Callable[[], Tensor] | None = None  # computes `log_probability`; None if the candidates have none

    def __post_init__(self) -> None:
        shape = self.position_m.shape
        if len(shape) != 3 or shape[1] < 1 or shape[2] != 2 or self.std_m.shape != shape:
            raise ValueError(
                f"position_m has the shape {list(shape)} and std_m {list(self.std_m.shape)}, expected [K, T, 2] of both"
            )

    def __len__(self) -> int:
        return len(self.position_m)

    @staticmethod
    def of_trajectory(trajectory: Trajectory, setting: Setting) -> "Candidates":
        """Candidates from K trajectories that were not decoded, such as those of a tracker; sample 0 is now."""
        position_m = torch.tensor(trajectory.at_centre(setting.vehicle).position_m[:, 1:], device=setting.device)
        candidates = Candidates(
            position_m=position_m,
            std_m=torch.zeros_like(position_m),
            num_tokens=0,
            dt_s=setting.scene.dt_s,
            setting=setting,
        )
        candidates.__dict__["trajectory"] = trajectory  # fills the cached property: no conversion back from tensors
        return candidates

    def select(self, index: Int[Tensor, " k"] | slice) -> "Candidates":
        """Some of the candidates."""
        prior = None if self.prior is None else lambda: self.log_probability[index]
        return replace(self, position_m=self.position_m[index], std_m=self.std_m[index], prior=prior)

    def detached(self) -> "Candidates":
        """The candidates without gradients."""
        return replace(self, position_m=self.position_m.detach(), std_m=self.std_m.detach())

    @property
    def num_steps(self) -> int:
        return self.position_m.shape[1]

    @property
    def horizon_s(self) -> float:
        return self.num_steps * self.dt_s

    @cached_property
    def trajectory(self) -> Trajectory:
        """The candidates in numpy (float64, no gradients), [K, T + 1]: sample 0 is the agent's current state."""
        state, count = self.setting.state, len(self)

        def with_now(now: np.ndarray, later: Tensor) -> np.ndarray:
            now = np.broadcast_to(now[:, None], (count, 1, *now.shape[1:]))
            return np.concatenate([now, later.detach().cpu().double().numpy()], axis=1)

        return Trajectory(
            position_m=with_now(state.centre_m(self.setting.vehicle), self.position_m),
            heading_rad=with_now(state.heading_rad, self.heading_rad),
            speed_mps=with_now(np.maximum(0.0, state.speed_mps), self.speed_mps),
        )

    @cached_property
    def time_s(self) -> Float[Tensor, " T"]:
        """Seconds after the current step."""
        return self.dt_s * torch.arange(1, self.num_steps + 1, device=self.position_m.device).to(self.position_m)

    @property
    def start_m(self) -> Float[Tensor, "2"]:
        return self.setting.start_m.to(self.position_m)

    @property
    def start_heading_rad(self) -> float:
        return self.setting.start_heading_rad

    @property
    def start_speed_mps(self) -> float:
        return self.setting.start_speed_mps

    @cached_property
    def path_m(self) -> Float[Tensor, "K T_plus_1 2"]:
        """The trajectories, preceded by the current position."""
        return torch.cat([self.start_m.expand(len(self), 1, 2), self.position_m], dim=1)

    @cached_property
    def step_m(self) -> Float[Tensor, "K T 2"]:
        """Displacement of each step, the first from the current position."""
        return self.path_m.diff(dim=1)

    @cached_property
    def step_length_m(self) -> Float[Tensor, "K T"]:
        return torch.linalg.vector_norm(self.step_m, dim=-1)

    @cached_property
    def travelled_m(self) -> Float[Tensor, "K T"]:
        """Length of the path up to the end of each step."""
        return self.step_length_m.cumsum(dim=1)

    @property
    def velocity_mps(self) -> Float[Tensor, "K T 2"]:
        return self.step_m / self.dt_s

    @property
    def speed_mps(self) -> Float[Tensor, "K T"]:
        """Mean speed over each step."""
        return self.step_length_m / self.dt_s

    @cached_property
    def moving(self) -> Bool[Tensor, "K T"]:
        """Whether each step is long enough to have a heading."""
        return self.step_length_m.detach() >= _MIN_HEADING_STEP_M

    @cached_property
    def heading_rad(self) -> Float[Tensor, "K T"]:
        """Direction of each step; held while standing; the agent's current heading before the first motion."""
        held = self._last_moving
        angle = self._step_angle_rad.gather(1, held.clamp(min=0))
        return torch.where(held >= 0, angle, self.start_heading_rad)

    @cached_property
    def heading_change_rad(self) -> Float[Tensor, "K T_minus_1"]:
        """Change from the last step with a heading, in [-pi, pi]; 0 while standing and at the first motion."""
        turns = self.moving[:, 1:] & (self._last_moving[:, :-1] >= 0)
        angle = self.heading_rad
        change = angle[:, 1:] - angle[:, :-1]
        change = change - 2 * torch.pi * (change.detach() / (2 * torch.pi)).round()
        return torch.where(turns, change, 0.0)

    @cached_property
    def curvature_1pm(self) -> Float[Tensor, "K T_minus_1"]:
        """Heading change per arclength between the midpoints of the two steps, left positive."""
        middle = self.travelled_m - self.step_length_m / 2
        length = middle[:, 1:] - middle.gather(1, self._last_moving.clamp(min=0))[:, :-1]
        turns = self.heading_change_rad.detach() != 0
        return torch.where(turns, self.heading_change_rad / torch.where(turns, length, 1.0), 0.0)

    @cached_property
    def acceleration_mps2(self) -> Float[Tensor, "K T_minus_1 2"]:
        """Finite differences of the velocity."""
        return self.velocity_mps.diff(dim=1) / self.dt_s

    @cached_property
    def longitudinal_acceleration_mps2(self) -> Float[Tensor, "K T_minus_1"]:
        """Finite differences of the speed."""
        return self.speed_mps.diff(dim=1) / self.dt_s

    @cached_property
    def yaw_rate_radps(self) -> Float[Tensor, "K T_minus_1"]:
        return self.heading_change_rad / self.dt_s

    @cached_property
    def lateral_acceleration_mps2(self) -> Float[Tensor, "K T_minus_1"]:
        """Yaw rate times mean speed, left positive."""
        return self.yaw_rate_radps * (self.speed_mps[:, 1:] + self.speed_mps[:, :-1]) / 2

    @property
    def longitudinal_jerk_mps3(self) -> Float[Tensor, "K T_minus_2"]:
        return self.longitudinal_acceleration_mps2.diff(dim=1) / self.dt_s

    @property
    def jerk_mps3(self) -> Float[Tensor, "K T_minus_2 2"]:
        return self.acceleration_mps2.diff(dim=1) / self.dt_s

    @property
    def final_std_m(self) -> Float[Tensor, " K"]:
        """Magnitude of the standard deviation at the last step (the paper's sigma_xy)."""
        return torch.linalg.vector_norm(self.std_m[:, -1], dim=-1)

    @cached_property
    def log_probability(self) -> Float[Tensor, " K"]:
        """Log probability in nats of the tokens of each candidate, by the model's prior. Computed when first used.

        Latents between the codebook's levels count as the nearest code.
        """
        if self.prior is None:
            raise ObjectiveError(
                "the candidates have no likelihood: expected codes of 2 levels, decoded by a model with a prior"
            )
        return self.prior()

    @cached_property
    def _last_moving(self) -> Int[Tensor, "K T"]:
        """Index of the last step with a heading, up to and including each step; -1 before the first."""
        index = torch.arange(self.num_steps, device=self.position_m.device)
        return torch.where(self.moving, index, -1).cummax(dim=1).values

    @cached_property
    def _step_angle_rad(self) -> Float[Tensor, "K T"]:
        """Direction of each step; 0, without a gradient, for steps too short to have one."""
        ahead = self.position_m.new_tensor([1.0, 0.0])
        step = torch.where(self.moving[..., None], self.step_m, ahead)  # atan2 has no gradient at the origin
        return torch.atan2(step[..., 1], step[..., 0])


@dataclass(frozen=True, kw_only=True, eq=False)
class JointCandidates(SharedResults):
    """K joint futures of several agents of a scene: the k-th trajectories of all agents belong together."""

    agents: tuple[Candidates, ...]
    prior: Callable[[], Tensor] | None = None  # computes `log_probability`; None if the candidates have none

    def __len__(self) -> int:
        return len(self.agents[0])

    def of(self, agent_id: str) -> Candidates:
        """The trajectories of one of the agents."""
        for one in self.agents:
            if one.setting.agent_id == agent_id:
                return one
        available = ", ".join(one.setting.agent_id for one in self.agents)
        raise ObjectiveError(f"no agent {agent_id!r} is planned for, expected one of {available}")

    def select(self, index: Int[Tensor, " k"] | slice) -> "JointCandidates":
        """Some of the candidates."""
        prior = None if self.prior is None else lambda: self.log_probability[index]
        return JointCandidates(agents=tuple(one.select(index) for one in self.agents), prior=prior)

    def detached(self) -> "JointCandidates":
        """The candidates without gradients."""
        return replace(self, agents=tuple(one.detached() for one in self.agents))

    @cached_property
    def position_m(self) -> Float[Tensor, "A K T 2"]:
        return torch.stack([one.position_m for one in self.agents])

    @property
    def num_steps(self) -> int:
        return self.agents[0].num_steps

    @property
    def num_tokens(self) -> int:
        return self.agents[0].num_tokens

    @property
    def final_std_m(self) -> Float[Tensor, " K"]:
        """That of the agent that the model is least certain of."""
        return torch.stack([one.final_std_m for one in self.agents]).amax(dim=0)

    @cached_property
    def log_probability(self) -> Float[Tensor, " K"]:
        """Log probability in nats of the tokens of each joint future; see `Candidates.log_probability`."""
        if self.prior is None:
            raise ObjectiveError(
                "the candidates have no likelihood: expected codes of 2 levels, decoded by a model with a prior"
            )
        return self.prior()


AnyCandidates = Candidates | JointCandidates
