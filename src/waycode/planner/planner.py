"""The facade: a model that encodes a scene once, for many cheap plans."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from waycode.features import CutMap, collate, cut_map, extract
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
        """A bundled model by its name, or one from its folder."""
        saved = load_model(name_or_folder)
        # Refinement needs gradients of tokens: those of weights would only cost time.
        return Planner(saved.model.to(device).requires_grad_(False), sigma_max_m=saved.sigma_max_m)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def cut_map(self, features: MapFeatures) -> CutMap:
        """A map as `encode` needs it: for scenes that share one, such as the steps of a drive."""
        return cut_map(features, config=self.model.config.features)

    def encode(self, scene: Scene, agent: int | str | None = None, *, cut: CutMap | None = None) -> View:
        """Looks at the scene as one of its road users: by index, by id, or else the ego or the first to predict.

        `cut` is the scene's map as `cut_map` gives it, if that is known already.
        """
        began = time.perf_counter()
        index = choose_agent(scene, agent)
        example = extract(scene, [index], config=self.model.config.features, cut=cut)
        batch = collate([example]).to(self.device)
        with torch.no_grad():
            seen = self.model.see(batch.scene, batch.agents)
            memory = self.model.remember(seen)
        return View(
            model=self.model,
            sigma_max_m=self.sigma_max_m,
            setting=Setting(scene=scene, agent=index, device=self.device),
            seen=seen,
            memory=memory,
            encode_s=time.perf_counter() - began,
        )
