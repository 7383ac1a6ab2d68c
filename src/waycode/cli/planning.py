"""What the commands about plans share: opening a scene and a planner, and drawing what was found."""

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32

from waycode.cli.data import UsageError
from waycode.dataset.dataset import Dataset, load_scene
from waycode.demo import bundled_dataset
from waycode.planner import Plan, Planner, View
from waycode.planner.search_panels import search_panels
from waycode.plotting import ComparisonPanel, save_comparison_picture, save_plan_picture
from waycode.scene import Scene
from waycode.training.folders import open_model

SAMPLE = "sample"  # the scenes that come with the package


def open_scene(name: str, index: int) -> Scene:
    """A scene of a file or folder, or of the bundled ones."""
    return load_scene(bundled_dataset().folder if name == SAMPLE else name, index)


def open_dataset(name: str) -> Dataset:
    """A dataset by its folder, or the bundled one."""
    return bundled_dataset() if name == SAMPLE else Dataset(name)


def open_planner(name_or_folder: str, *, threads: int) -> Planner:
    """A planner with a bundled model, or with that of a folder or a run, that computes with so many threads."""
    if threads < 1:
        raise UsageError(f"--threads is {threads}, expected at least 1")
    torch.set_num_threads(threads)
    saved = open_model(name_or_folder)
    return Planner(saved.model, sigma_max_m=saved.sigma_max_m)


def draw_plan(view: View, plan: Plan, path: Path, *, title: str, levels: int) -> None:
    """Every token's candidates, then the plan beside what was recorded."""
    save_plan_picture(
        view.scene,
        path,
        agent=view.agent,
        search=search_panels(view, plan, levels=levels),
        planned_m=plan.position_in(view.scene),
        recorded_m=recorded_m(view),
        title=title,
    )


def draw_swap(giver: View, taker: View, plan: Plan, path: Path) -> None:
    """What was done in one scene, and what the same code is in another."""
    code = " ".join(map(str, plan.tokens or ()))
    save_comparison_picture(
        [
            ComparisonPanel(
                scene=giver.scene,
                agent=giver.agent,
                recorded_m=recorded_m(giver),
                caption="the code is from here",
                detail=f"tokens {code}",
            ),
            ComparisonPanel(
                scene=taker.scene,
                agent=taker.agent,
                recorded_m=recorded_m(taker),
                planned_m=plan.position_in(taker.scene),
                caption="and decoded here",
                detail=f"{plan.status}; final standard deviation {plan.final_std_m:.1f} m",
            ),
        ],
        path,
        title="the same tokens in another scene",
    )


def recorded_m(view: View) -> Float32[np.ndarray, "t 2"] | None:
    """The agent's observed positions over the horizon of a plan; None if there are none."""
    scene, first = view.scene, view.scene.current_step + 1
    steps = slice(first, first + view.model.config.features.future_steps)
    valid = scene.tracks.valid[view.agent, steps]
    return scene.tracks.position_m[view.agent, steps][valid] if valid.any() else None
