"""What the commands about plans share: opening a scene and a planner, and drawing what was found."""

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32

from waycode.cli.data import UsageError
from waycode.dataset.dataset import Dataset, load_scene
from waycode.demo import bundled_dataset
from waycode.model.saved import load_model
from waycode.planner import Plan, Planner, View
from waycode.planner.stages import stages_of
from waycode.plotting.plan_picture import Outcome, save_outcomes_picture, save_plan_picture
from waycode.scene import Scene

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
    saved = load_model(name_or_folder)
    return Planner(saved.model, sigma_max_m=saved.sigma_max_m)


def draw_plan(view: View, plan: Plan, path: Path, *, title: str, levels: int) -> None:
    """Every token's candidates, then the plan beside what was recorded."""
    save_plan_picture(
        view.scene,
        path,
        agent=view.agent,
        stages=stages_of(view, plan, levels=levels),
        chosen_m=plan.position_in(view.scene),
        original_m=recorded_m(view),
        title=title,
    )


def draw_swap(giver: View, taker: View, plan: Plan, path: Path) -> None:
    """What was done in one scene, and what the same code is in another."""
    code = " ".join(map(str, plan.tokens or ()))
    save_outcomes_picture(
        [
            Outcome(
                scene=giver.scene,
                agent=giver.agent,
                original_m=recorded_m(giver),
                caption="the code is from here",
                detail=f"tokens {code}",
            ),
            Outcome(
                scene=taker.scene,
                agent=taker.agent,
                original_m=recorded_m(taker),
                chosen_m=plan.position_in(taker.scene),
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
