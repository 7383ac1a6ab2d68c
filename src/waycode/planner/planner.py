"""The facade: a model that encodes a scene once, for many cheap plans."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from waycode.features import SegmentedMap, collate, extract, segment_map
from waycode.model import Model
from waycode.model.saved import load_model
from waycode.objectives import Setting
from waycode.planner.agents import choose_agent
from waycode.planner.view import View
from waycode.scene import MapFeatures, Scene


@dataclass(frozen=True, eq=False)
class Planner:
    """A trained model, and above which final standard deviation its plans are doubtful, by number of tokens."""

    model: Model
    sigma_max_m: Mapping[int, float] = field(default_factory=dict, kw_only=True)

    @staticmethod
    def from_pretrained(name_or_folder: str | Path, *, device: torch.device | str = "cpu") -> "Planner":
        """Loads a model: a bundled one by its name, or from a model's folder or a training run's folder.

        Args:
            name_or_folder: such as "sumo-small" or "runs/mine".
            device: to compute on.
        """
        saved = load_model(name_or_folder)
        # Refinement needs gradients of tokens: those of weights would only cost time.
        return Planner(saved.model.to(device).requires_grad_(False), sigma_max_m=saved.sigma_max_m)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def cut_map(self, features: MapFeatures) -> SegmentedMap:
        """A map as `encode` needs it: for scenes that share one, such as the steps of a drive."""
        return segment_map(features, config=self.model.config.features)

    def encode(self, scene: Scene, agent: int | str | None = None, *, cut: SegmentedMap | None = None) -> View:
        """Looks at the scene as one of its road users: by index, by id, or else the ego or the first to predict.

        `cut` is the scene's map as `cut_map` gives it, if that is known already.
        """
        began = time.perf_counter()
        index = choose_agent(scene, agent)
        example = extract(scene, [index], config=self.model.config.features, segmented_map=cut)
        batch = collate([example]).to(self.device)
        with torch.no_grad():
            memory = self.model.encode_scene(batch.scene, batch.agents)
        return View(
            model=self.model,
            sigma_max_m=self.sigma_max_m,
            setting=Setting(scene=scene, agent=index, device=self.device),
            seen=memory.tokens,
            memory=memory,
            encode_s=time.perf_counter() - began,
        )
