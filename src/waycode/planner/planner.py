"""`Planner`: a trained model that encodes a scene once, for many cheap plans."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import overload

import numpy as np
import torch

from waycode.driving import Forecast, VehicleState, lane_forecast
from waycode.features import SegmentedMap, collate, extract, segment_map
from waycode.model import Model, SceneEmbedding, VarianceGate
from waycode.model.saved import find_model, load_model
from waycode.objectives import Setting
from waycode.planner.familiarity import Familiarity
from waycode.planner.joint_view import JointView, check_agents
from waycode.planner.plan import PlannerError
from waycode.planner.prior import CodePrior, most_likely
from waycode.planner.view import View
from waycode.scene import MapFeatures, Scene, TrackType
from waycode.scene.arguments import check_kind, check_type
from waycode.scene.frames import rotate

_FORECAST_MOVING_MPS = 0.5  # slower road users are forecast to keep their velocity
_MAX_LISTED = 12  # agents named in an error; crowded scenes have hundreds


@dataclass(frozen=True, eq=False)
class Planner:
    """A trained model with the thresholds of its gate."""

    model: Model
    gate: VarianceGate = field(default_factory=VarianceGate, kw_only=True)
    familiarity: Familiarity | None = field(default=None, kw_only=True)  # notices scenes of an unknown kind

    @staticmethod
    def from_pretrained(name_or_folder: str | Path, *, device: torch.device | str = "cpu") -> "Planner":
        """Loads a model: a bundled one by its name, or from a model's folder or a training run's folder.

        Args:
            name_or_folder: such as "sumo-small" or "runs/mine".
            device: to compute on.
        """
        check_kind("a name or a path", PlannerError, name_or_folder=name_or_folder)
        saved = load_model(name_or_folder)
        return Planner(
            saved.model.to(device).requires_grad_(False),  # refinement needs gradients of latents only
            gate=saved.gate,
            familiarity=Familiarity.load(find_model(name_or_folder)),
        )

    def __repr__(self) -> str:
        config, count = self.model.config, sum(parameter.numel() for parameter in self.model.parameters())
        gate = "calibrated" if self.gate.sigma_max_m else "not calibrated"
        scenes = "calibrated" if self.familiarity is not None else "not calibrated"
        return (
            f"Planner: {count:,} parameters on {self.device}, {config.num_tokens} tokens of {config.token_dim} "
            f"dimensions; gate {gate}, for scenes {scenes}"
        )

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def segment_map(self, features: MapFeatures) -> SegmentedMap:
        """The map as `encode` needs it. Compute it once for scenes that share a map, such as the steps of a drive."""
        return segment_map(features, config=self.model.config.features)

    @overload
    def encode(
        self, scene: Scene, agent: int | str | None = None, *, segmented_map: SegmentedMap | None = None,
        setting: Setting | None = None,
    ) -> View: ...  # fmt: skip

    @overload
    def encode(
        self, scene: Scene, *, agents: Sequence[int | str], segmented_map: SegmentedMap | None = None
    ) -> JointView: ...

    def encode(
        self,
        scene: Scene,
        agent: int | str | None = None,
        *,
        agents: Sequence[int | str] | None = None,
        segmented_map: SegmentedMap | None = None,
        setting: Setting | None = None,
    ) -> View | JointView:
        """Encodes the scene for one of its agents, or for several that are planned for jointly.

        Args:
            scene: the scene; the model sees its map, and tracks and signals up to the current step.
            agent: index or id of a track; by default the ego, or else the first track to predict.
            agents: indices or ids of tracks, each once: they share a code. Needs a joint model, and replaces `agent`.
            segmented_map: `segment_map(scene.map)`, if the caller has it.
            setting: the agent and its surroundings, if the caller knows more than the scene contains: the exact
                vehicle state of a simulator, or a road that is kept for a scenario. It replaces `agent`; its device
                must be that of the model.
        """
        check_type(Scene, PlannerError, scene=scene)
        if agents is not None:
            return self._encode_jointly(scene, agents, segmented_map)
        if setting is None:
            return self.encode_agents(scene, [agent], segmented_map=segmented_map)[0]
        return self._encode(scene, [setting], segmented_map)[0]

    def encode_agents(
        self, scene: Scene, agents: Sequence[int | str | None], *, segmented_map: SegmentedMap | None = None
    ) -> list[View]:
        """Encodes the scene once for several of its agents; a view for each.

        Each view is the one that `encode` gives if the model sees the same part of the scene: it sees what is within
        `max_distance_m` of any of the agents, and of that the `max_scene_tokens` map segments and road users nearest
        to any of them. In larger scenes, the agents share these.

        Args:
            scene: the scene.
            agents: indices or ids of tracks; None: as for `encode`.
            segmented_map: `segment_map(scene.map)`, if the caller has it.
        """
        settings = [Setting(scene=scene, agent=_agent_index(scene, agent), device=self.device) for agent in agents]
        return self._encode(scene, settings, segmented_map) if settings else []

    @torch.no_grad()
    def forecast_others(
        self,
        scene: Scene,
        agent: int,
        *,
        num_steps: int,
        near: VehicleState | None = None,
        reach_m: float = 100.0,
        segmented_map: SegmentedMap | None = None,
    ) -> Forecast[np.ndarray]:
        """Moving vehicles and cyclists drive their most likely code by the model's prior; others as `lane_forecast` has
        them, with `braking`. Ours; needs a model with a prior.

        Args:
            scene: the scene; nothing after its current step is read.
            agent: the planning agent's track, which is left out.
            num_steps: samples after the current one; at most as many as the model decodes.
            near: if given, only road users within `reach_m` of its rear axle are forecast.
            reach_m: largest distance from `near`.
            segmented_map: `segment_map(scene.map)`, if the caller has it.
        """
        decoded = self.model.config.features.future_steps
        if num_steps > decoded:
            raise PlannerError(f"asked for {num_steps} steps of a forecast, expected at most the model's {decoded}")
        lanes = lane_forecast(scene, agent, num_steps=num_steps, near=near, reach_m=reach_m, braking=True)
        is_wheeled = np.isin(lanes.types, (TrackType.VEHICLE, TrackType.CYCLIST))
        moving = np.linalg.norm(lanes.velocity_mps[:, 0], axis=-1) > _FORECAST_MOVING_MPS
        rows = np.flatnonzero(is_wheeled & moving)
        if len(rows) == 0:
            return lanes
        settings = [Setting(scene=scene, agent=int(track), device=self.device) for track in lanes.track[rows]]
        prior = CodePrior(model=self.model, scene=self._embed(scene, settings, segmented_map)[0])
        depth = self.model.config.num_tokens
        ids = prior.ids_of(most_likely(prior.of_all_codes(depth), 1), depth)
        path = self.model.decode(prior.codebook.codes(ids), prior.scene)[0][:, 0, :num_steps].double().cpu().numpy()
        start_m, start_rad = lanes.position_m[rows, 0], lanes.heading_rad[rows, 0]
        position = np.concatenate([start_m[:, None], rotate(path, start_rad[:, None]) + start_m[:, None]], axis=1)
        velocity = np.gradient(position, scene.dt_s, axis=1)
        slow = np.linalg.norm(velocity, axis=-1) < _FORECAST_MOVING_MPS  # too slow to have a direction of motion
        heading = np.where(slow, start_rad[:, None], np.arctan2(velocity[..., 1], velocity[..., 0]))
        columns = {"position_m": position, "heading_rad": heading, "velocity_mps": velocity}
        changed = {name: getattr(lanes, name).copy() for name in columns}
        for name, values in columns.items():
            changed[name][rows] = values
        return replace(lanes, **changed)

    def _encode(self, scene: Scene, settings: Sequence[Setting], segmented_map: SegmentedMap | None) -> list[View]:
        """Views of agents of one scene."""
        embedding, encode_s = self._embed(scene, settings, segmented_map)
        return [
            View(
                model=self.model,
                gate=self.gate,
                familiarity=self.familiarity,
                setting=setting,
                embedding=embedding.only(row) if len(settings) > 1 else embedding,
                encode_s=encode_s / len(settings),
            )
            for row, setting in enumerate(settings)
        ]

    def _encode_jointly(
        self, scene: Scene, agents: Sequence[int | str], segmented_map: SegmentedMap | None
    ) -> JointView:
        """A view of several agents that share a code."""
        if not self.model.config.joint:
            raise PlannerError(
                "the model encodes every agent on its own, expected a joint one (recipe small-joint) for several"
            )
        tracks = [_agent_index(scene, agent) for agent in agents]
        check_agents([scene.tracks.ids[track] for track in tracks])
        settings = tuple(Setting(scene=scene, agent=track, device=self.device) for track in tracks)
        embedding, encode_s = self._embed(scene, settings, segmented_map)
        return JointView(
            model=self.model, gate=self.gate, familiarity=self.familiarity, setting=settings[0], settings=settings,
            embedding=embedding, encode_s=encode_s,
        )  # fmt: skip

    def _embed(
        self, scene: Scene, settings: Sequence[Setting], segmented_map: SegmentedMap | None
    ) -> tuple[SceneEmbedding, float]:
        """The scene as the model sees it, with a row per agent, and the seconds that this took."""
        began, agents = time.perf_counter(), [setting.agent for setting in settings]
        example = extract(scene, agents, config=self.model.config.features, segmented_map=segmented_map)
        batch = collate([example]).to(self.device)
        with torch.no_grad():
            embedding = self.model.encode_scene(batch.scene, batch.agents)
        return embedding, time.perf_counter() - began


def recorded_agents(scene: Scene) -> list[int]:
    """The tracks to predict that are observed now and at least once afterwards: their future can be encoded."""
    valid = scene.tracks.valid
    observed = valid[:, scene.current_step] & valid[:, scene.current_step + 1 :].any(axis=1)
    return [int(track) for track in scene.tracks.to_predict if observed[track]]


def _agent_index(scene: Scene, agent: int | str | None) -> int:
    """The index of a track that is observed now, from an index or an id; by default the ego or a track to predict."""
    tracks, now = scene.tracks, scene.current_step
    if agent is None:
        first = [] if tracks.ego_index is None else [tracks.ego_index]
        for track in [*first, *tracks.to_predict]:
            if tracks.valid[track, now]:
                return int(track)
        raise PlannerError(
            f"scene {scene.id!r} has neither an ego nor a track to predict that is observed now: "
            f"name an agent; observed now: {_observed_names(scene)}"
        )
    if isinstance(agent, str):
        if agent not in tracks.ids:
            raise PlannerError(f"scene {scene.id!r} has no agent {agent!r}; observed now: {_observed_names(scene)}")
        agent = tracks.ids.index(agent)
    check_kind("a whole number", PlannerError, agent=agent)
    if not 0 <= agent < len(tracks):
        raise PlannerError(f"scene {scene.id!r} has no track {agent}: expected 0 to {len(tracks) - 1}")
    if not tracks.valid[agent, now]:
        raise PlannerError(
            f"agent {tracks.ids[agent]!r} of scene {scene.id!r} is not observed at the current step; "
            f"observed now: {_observed_names(scene)}"
        )
    return agent


def _observed_names(scene: Scene) -> str:
    """The ids of the agents that can be planned for, tracks to predict first."""
    observed = np.flatnonzero(scene.tracks.valid[:, scene.current_step])
    to_predict = (int(track) for track in scene.tracks.to_predict if track in observed)
    names = [scene.tracks.ids[track] for track in dict.fromkeys([*to_predict, *observed.tolist()])]
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return (", ".join(names[:_MAX_LISTED]) or "none") + more
