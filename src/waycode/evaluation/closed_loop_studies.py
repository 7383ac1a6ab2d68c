"""What is compared in a closed loop: drivers, settings of latent search, and proposals under several judges.

Each study is a set of campaigns over the same scenarios and the name of the one that the others are compared with.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from waycode.evaluation.report import EvaluationError
from waycode.model.saved import load_model
from waycode.objectives import DRIVING_OBJECTIVE
from waycode.simulation.campaign import Campaign
from waycode.simulation.drivers import PAPER, PDM_SCORE, LatentConfig, PolicyConfig
from waycode.simulation.registry import DriverSpec, TrafficName

StudyName = Literal["closed-loop", "closed-loop-ablation", "paper-ablation", "proposals"]
COMPARED_PLANNERS: tuple[str, ...] = ("replay", "pdm-closed", "idm", "constant-velocity", "imitation", "latent")
COMPARED_TRAFFIC: tuple[TrafficName, ...] = ("replay", "idm")
TRAFFIC_LABELS: dict[TrafficName, str] = {"replay": "NR", "idm": "R", "sumo": "R (SUMO)"}
_COMPARISON_REFERENCE = "pdm-closed"

_ABLATION_REFERENCE = "depth 3, beam 2"
ABLATIONS: dict[str, LatentConfig] = {
    "depth 1, beam 1": LatentConfig(depth=1, beam_width=1),
    "depth 2, beam 1": LatentConfig(depth=2, beam_width=1),
    "depth 3, beam 1": LatentConfig(depth=3, beam_width=1),
    _ABLATION_REFERENCE: LatentConfig(),
    "depth 3, beam 4": LatentConfig(beam_width=4),
    "... without route": LatentConfig(
        objective=DRIVING_OBJECTIVE.replace("5 * route-progress + ", ""),
        policy=PolicyConfig(keep_bonus=0.02 * 11),  # 2 % of the sum of nuPlan's remaining weights
    ),
    "... without edge": LatentConfig(
        objective=DRIVING_OBJECTIVE.replace(" + off-road", "").replace(" + 4 * road-reserve", "")
    ),
    "... without collision": LatentConfig(
        objective=DRIVING_OBJECTIVE.replace("at-fault-collision + ", "")
        .replace(" + 5 * time-to-collision", "")
        .replace(" + 5 * room-to-brake", "")
    ),
}

_PAPER_REFERENCE = "depth 3, beam 2, refined"
# The rows of the paper's table "Ablation study on nuPlan" (section 5.1).
PAPER_ABLATIONS: dict[str, LatentConfig] = {
    "depth 3, beam 1": replace(PAPER, beam_width=1, refine_steps=0),
    "depth 3, beam 2": replace(PAPER, refine_steps=0),
    "depth 3, beam 4": replace(PAPER, beam_width=4, refine_steps=0),
    "depth 4, beam 2": replace(PAPER, depth=4, refine_steps=0),
    _PAPER_REFERENCE: PAPER,
    "... without edge": replace(PAPER, objective="route-following"),
    "... without route and edge": replace(PAPER, objective="terminal-variance"),
}

# Where trajectories come from.
PROPOSALS: dict[str, LatentConfig] = {
    "search, 1 token": LatentConfig(depth=1),
    "search, 2 tokens": LatentConfig(depth=2),
    "search, 3 tokens": LatentConfig(),
    "samples of the prior": LatentConfig(proposals="samples"),
    "all codes": LatentConfig(proposals="all-codes"),
    "centreline": LatentConfig(proposals="centreline"),
    "constant velocity": LatentConfig(proposals="constant-velocity"),
}
# Who chooses between them: the objective, and 2 % of its range as the bonus of the last plan. The range of the paper's
# objective is the progress in 4 s at 10 m/s.
JUDGES: dict[str, tuple[str, float]] = {
    "driving": (DRIVING_OBJECTIVE, PolicyConfig().keep_bonus),
    "PDM": (PDM_SCORE, 0.02),
    "paper": (PAPER.objective, 0.02 * 40),
}
_WHOLE_POLICY = "whole policy"
POLICIES: dict[str, PolicyConfig] = {
    _WHOLE_POLICY: PolicyConfig(),
    "no kept plan": PolicyConfig(keep_last_plan=False),
    "no slowed variants": PolicyConfig(slowing_mps2=()),
    "no stops": PolicyConfig(stop=False),
    "none of them": PolicyConfig(keep_last_plan=False, slowing_mps2=(), stop=False),
}
_SEPARATOR = "; "


@dataclass(frozen=True, kw_only=True)
class ProposalStudy:
    """Proposals x judges under the whole policy, and some of them under the driving objective with less policy."""

    proposals: tuple[str, ...] = tuple(PROPOSALS)
    judges: tuple[str, ...] = tuple(JUDGES)
    policies: tuple[str, ...] = tuple(POLICIES)  # those but the whole policy are driven by `with_policies` alone
    with_policies: tuple[str, ...] = ("search, 1 token", "search, 3 tokens", "centreline")

    def __post_init__(self) -> None:
        for name, known in (
            ("proposals", PROPOSALS),
            ("judges", JUDGES),
            ("policies", POLICIES),
            ("with_policies", PROPOSALS),
        ):
            unknown = [each for each in getattr(self, name) if each not in known]
            if unknown:
                raise EvaluationError(f"{name} has {', '.join(unknown)}, expected some of {', '.join(known)}")

    def configurations(self) -> dict[str, LatentConfig]:
        """The configuration of the driver in each cell, by its name."""
        cells = [(each, judge, _WHOLE_POLICY) for each in self.proposals for judge in self.judges]
        cells += [
            (each, "driving", policy)
            for each in self.with_policies
            for policy in self.policies
            if policy != _WHOLE_POLICY and each in self.proposals
        ]
        found = {}
        for proposals, judge, policy in dict.fromkeys(cells):
            objective, keep_bonus = JUDGES[judge]
            found[_SEPARATOR.join((proposals, judge, policy))] = replace(
                PROPOSALS[proposals],
                objective=objective,
                policy=replace(POLICIES[policy], keep_bonus=keep_bonus),
            )
        return found


def cell_of(planner: str) -> tuple[str, str, str]:
    """Proposals, judge and policy of a row of the study of proposals."""
    proposals, judge, policy = planner.split(_SEPARATOR)
    return proposals, judge, policy


@dataclass(frozen=True, kw_only=True)
class Study:
    """Campaigns over the same scenarios."""

    campaigns: dict[str, Campaign]  # by name; rows are named without the label of the traffic at the end
    reference: str  # name of the row that the others are compared with


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """What a study drives; each field matters to one study."""

    planners: tuple[str, ...] = ()  # for "closed-loop"; empty: `COMPARED_PLANNERS`
    traffic: tuple[TrafficName, ...] = COMPARED_TRAFFIC  # for "closed-loop"
    proposals: ProposalStudy = field(default_factory=ProposalStudy)  # for "proposals"


def build_study(
    name: StudyName, folder: Path, *, indices: tuple[int, ...], model: str, options: StudyOptions | None = None
) -> Study:
    """The campaigns of a study.

    Args:
        name: of the study.
        folder: dataset.
        indices: scenes to drive.
        model: what `--model` takes.
        options: what to drive; by default everything.
    """
    options = StudyOptions() if options is None else options
    if name == "closed-loop":
        planners = options.planners or COMPARED_PLANNERS
        campaigns = comparison(folder, indices, model=model, planners=planners, traffics=options.traffic)
        return Study(campaigns=campaigns, reference=_COMPARISON_REFERENCE)
    if name == "closed-loop-ablation":
        rows, reference = ABLATIONS, _ABLATION_REFERENCE
    elif name == "paper-ablation":
        rows, reference = _paper_rows(model), _PAPER_REFERENCE
    else:
        rows = options.proposals.configurations()
        reference = _SEPARATOR.join(("search, 3 tokens", "driving", _WHOLE_POLICY))
    return Study(
        campaigns={
            row: Campaign(folder=folder, indices=indices, planner=DriverSpec(model=model, latent=config))
            for row, config in rows.items()
        },
        reference=reference,
    )


def comparison(
    folder: Path,
    indices: tuple[int, ...],
    *,
    model: str,
    planners: Sequence[str] = COMPARED_PLANNERS,
    traffics: Sequence[TrafficName] = COMPARED_TRAFFIC,
) -> dict[str, Campaign]:
    """Campaigns of planners in each kind of traffic.

    Args:
        folder: dataset.
        indices: scenes to drive.
        model: what `--model` takes, for the planners that need one.
        planners: by the names of the command line.
        traffics: "replay" is non-reactive.
    """
    return {
        f"{planner} {TRAFFIC_LABELS[traffic]}": Campaign(
            folder=folder, indices=indices, planner=DriverSpec(name=planner, model=model), traffic=traffic
        )
        for traffic in traffics
        for planner in planners
    }


def _paper_rows(model: str) -> dict[str, LatentConfig]:
    """The paper's settings that the model has enough tokens for."""
    num_tokens = load_model(model).model.config.num_tokens
    return {name: config for name, config in PAPER_ABLATIONS.items() if config.depth <= num_tokens}
