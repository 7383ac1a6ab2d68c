"""Reports on joint models: one of the evaluations of joint futures over all scenes of a dataset. S scenes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Shaped

from waycode.dataset.seeds import episode_of
from waycode.evaluation.consistency import joint_consistency
from waycode.evaluation.guidance_report import Rows
from waycode.evaluation.joint import (
    PAPER_AGENTS,
    JointBatch,
    JointMeasures,
    depth_sweep,
    interacting,
    joint_batches,
    joint_guidance,
    search_vs_optimisation,
)
from waycode.evaluation.report import Estimate, EvaluationError, Provenance, Report
from waycode.evaluation.yielding import crossing_pair, joint_yielding
from waycode.model import Model
from waycode.scene import Scene


@dataclass(frozen=True, kw_only=True)
class JointReport(Report):
    """A table of methods, each with its measures; see `EVALUATIONS`."""

    name: str  # of the evaluation
    agents_per_scene: int  # at most
    num_scenes: int
    num_episodes: int
    num_agents: int
    rows: Rows

    @property
    def file_name(self) -> str:
        agents = "" if self.agents_per_scene == PAPER_AGENTS else f"-{self.agents_per_scene}-agents"
        return f"{self.name}{agents}.json"


EVALUATIONS: dict[str, Callable[[JointBatch], JointMeasures]] = {
    "joint-guidance": joint_guidance,
    "depth-sweep": depth_sweep,
    "search-vs-optimisation": search_vs_optimisation,
    "joint-consistency": joint_consistency,
    "joint-yielding": joint_yielding,
}


def joint_report(
    name: str,
    model: Model,
    scenes: Iterable[Scene],
    *,
    provenance: Provenance,
    agents_per_scene: int = PAPER_AGENTS,
    on_scenes: Callable[[int], None] = lambda count: None,
) -> JointReport:
    """One of `EVALUATIONS` over all scenes.

    Args:
        name: of the evaluation.
        model: a joint model.
        scenes: with recorded futures that the model was not trained on.
        provenance: what the figures are measured with.
        agents_per_scene: at most.
        on_scenes: called with the number of scenes done since the last call.
    """
    parts: list[JointMeasures] = []
    episodes: list[str] = []
    num_agents = 0
    choose = crossing_pair if name == "joint-yielding" else partial(interacting, count=agents_per_scene)
    for batch in joint_batches(model, scenes, choose=choose, on_scenes=on_scenes):
        parts.append(EVALUATIONS[name](batch))
        episodes += [episode_of(scene) for scene in batch.scenes]
        num_agents += len(batch.future_m)
    if not parts:
        raise EvaluationError(f"{name} found no case: no scene has two recorded road users that interact in its way")
    return JointReport(
        provenance=provenance,
        name=name,
        agents_per_scene=agents_per_scene,
        num_scenes=len(episodes),
        num_episodes=len(set(episodes)),
        num_agents=num_agents,
        rows=_rows(parts, np.array(episodes)),
    )


def _rows(parts: Sequence[JointMeasures], episodes: Shaped[np.ndarray, " S"]) -> Rows:
    return {
        method: {
            name: Estimate.of(np.concatenate([part[method][name] for part in parts]), episodes) for name in measures
        }
        for method, measures in parts[0].items()
    }
