"""The configuration of a training run, its recipes, and overrides from the command line."""

import ast
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np

from waycode.dataset.dataset import Dataset
from waycode.features import FeatureConfig
from waycode.model import ModelConfig, Spread
from waycode.model.config import config_from_json
from waycode.scene import WaycodeError


class TrainingError(WaycodeError):
    """A run that cannot be started or resumed."""


class Optimiser(StrEnum):
    """How gradients become steps."""

    ADAMW = "adamw"  # the paper's
    ORTHOGONAL = "orthogonal"  # orthogonal steps for the transformers' weight matrices (ours), see `optimiser.py`


class NestedDropout(StrEnum):
    """How the decoder is trained on prefixes (paper, sections 3.2 and A.3)."""

    SAMPLED = "sampled"  # the paper's: a random number of tokens per example
    EXPECTED = "expected"  # all numbers of tokens at once, weighted by their probability: the same mean, less variance
    OFF = "off"  # always all tokens


@dataclass(frozen=True, kw_only=True)
class NoiseConfig:
    """The adaptive noise of appendix A.4: sigma moves by (1 - gamma) * delta per step, up while ADE <= target."""

    target_ade_m: float = 1.0
    # The target at the end of the run, reached by equal ratios per step (ours); None: constant, as in the paper. A high
    # target at first lets sigma rise, so that the tokens become discrete; a low one later makes the encoder sharp.
    final_target_ade_m: float | None = None
    gamma: float = 0.9995
    delta: float = 0.01
    max_sigma: float = 1.0  # short runs would overshoot: more noise than this only costs capacity
    fixed_sigma: float | None = None  # the ablation: no adaptation
    # Share of the examples whose tokens are rounded to two levels instead (straight-through; ours). With noise alone,
    # the encoder repeats the first token in later ones; with rounding, later tokens have to refine it.
    rounded_share: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.rounded_share <= 1:
            raise ValueError(f"rounded_share is {self.rounded_share}, expected 0 to 1")
        for name in ("target_ade_m", "final_target_ade_m"):
            if getattr(self, name) is not None and getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}, expected a distance above 0")

    def target_at(self, progress: float) -> float:
        """The target after this share of the run."""
        final = self.target_ade_m if self.final_target_ade_m is None else self.final_target_ade_m
        return float(self.target_ade_m * (final / self.target_ade_m) ** progress)


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Everything that a run depends on, except the data. Weights of losses that are ours are 0 in the paper."""

    model: ModelConfig = field(default_factory=ModelConfig)
    noise: NoiseConfig = field(default_factory=NoiseConfig)
    nested_dropout: NestedDropout = NestedDropout.EXPECTED
    # Probability of dropping one token more, relative to one less; above 1/2, the paper's, is ours. With 12 tokens and
    # 1/2, the first token alone would be trained in 1 of 4,000 examples: enough for 300 million, not for one million.
    dropout_ratio: float = 0.5
    beta: float = 0.5  # of the beta-NLL
    steps: int = 10_000
    scenes_per_batch: int = 16
    agents_per_scene: int = 4  # at most
    learning_rate: float = 8e-4  # the highest of the schedule
    weight_decay: float = 0.02
    optimiser: Optimiser = Optimiser.ADAMW
    warm_up: float = 0.05  # share of the steps; then a cosine down to zero. 0: constant rate
    clip_norm: float = 1.0  # of the gradient
    gate_spread: Spread = Spread.BOTH  # what the variance gate of the model compares; the paper's is BOTH
    mirror: bool = True  # mirrors half of the examples (ours)
    balance: bool = True  # draws rare manoeuvres and types more often (ours)
    # Share of the scenes whose tokens are those that greedy search finds, instead of the encoder's (ours). The decoder
    # is then trained on what is used at test time, and the encoder is taught these tokens with `teaching_weight`.
    searched_share: float = 0.0
    teaching_weight: float = 0.0
    prior_weight: float = 0.0  # of the negative log-likelihood of searched tokens (ours)
    losses_from: float = 0.0  # share of the run after which the losses on path, acceleration and realism begin
    alternative_share: float = 0.0  # share of cars trained on an alternative to the recorded future, if there is one
    alternative_draws: float = 1.0  # how much more often cars with an alternative are drawn; one agent in seven has one
    history_dropout: float = 0.0  # share of modelled agents whose history is hidden
    path_weight: float = 0.0  # of the lateral distance to the recorded path, in metres
    acceleration_weight: float = 0.0  # of the acceleration error, in m/s^2
    realism_weight: float = 0.0  # of rule violations of random codes: off lane, over road edges, beyond a car's limits
    # Of the overlap with other agents, in metres: with their recorded futures or, in a joint model, with the futures
    # that are decoded from the same code, for random codes too.
    collision_weight: float = 0.0
    seed: int = 0
    validate_every: int = 1000  # steps
    checkpoint_every: int = 250  # steps

    def __post_init__(self) -> None:
        for name in ("steps", "scenes_per_batch", "agents_per_scene", "validate_every", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected at least 1")
        if not 0 < self.dropout_ratio <= 1:
            raise ValueError(f"dropout_ratio is {self.dropout_ratio}, expected above 0, at most 1")
        for name in ("beta", "warm_up", "history_dropout", "alternative_share", "searched_share", "losses_from"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected 0 to 1")


def tiny() -> TrainingConfig:
    """For tests: trains in under a minute."""
    model = ModelConfig(
        width=32, heads=2, feed_forward=64, scene_layers=1, encoder_layers=1, decoder_layers=2,
        max_scene_tokens=32, neighbours=8,
    )  # fmt: skip
    return TrainingConfig(
        model=model, noise=NoiseConfig(target_ade_m=4.0, gamma=0.9, delta=0.02), steps=150, scenes_per_batch=8,
        learning_rate=2e-3, validate_every=150, checkpoint_every=50,
    )  # fmt: skip


def small() -> TrainingConfig:
    """The recipe of the bundled model `sumo-small`, for two CPU cores: the paper's method and everything that helps."""
    return TrainingConfig(
        model=ModelConfig(polish=True),
        # 1e-3 per step and a lax target at first, so that sigma is at its bound after 500 steps: search finds order in
        # discrete tokens. The target meets the error of noisy tokens at two thirds of the run; sigma then falls.
        noise=NoiseConfig(
            target_ade_m=6.0, final_target_ade_m=0.25, gamma=0.9, delta=0.01, max_sigma=0.5, rounded_share=0.4
        ),
        searched_share=0.625, teaching_weight=8.0, prior_weight=0.2, alternative_share=0.5, alternative_draws=3.0,
        path_weight=1.0, acceleration_weight=0.3, realism_weight=6.0, losses_from=0.5, gate_spread=Spread.LEAST,
        optimiser=Optimiser.ORTHOGONAL, learning_rate=3e-3,
        steps=18_000, scenes_per_batch=8, agents_per_scene=12, validate_every=3_000,
    )  # fmt: skip


def small_paper() -> TrainingConfig:
    """The paper's method alone, with the size and the budget of `small`."""
    base = small()
    model = replace(base.model, spline_points=None, reachability=False, feedback=False, polish=False, prior=False)
    return TrainingConfig(
        # Sigma begins to rise when the error falls below the target, about a tenth of the run here.
        model=model, noise=NoiseConfig(target_ade_m=1.0, gamma=0.95, delta=0.01),
        nested_dropout=NestedDropout.SAMPLED, mirror=False, balance=False,
        learning_rate=2e-3, steps=base.steps,
        scenes_per_batch=base.scenes_per_batch, agents_per_scene=base.agents_per_scene,
        validate_every=base.validate_every,
    )  # fmt: skip


def small_joint() -> TrainingConfig:
    """The recipe of the bundled model `sumo-small-joint`: one code of 12 tokens for 2 to 8 agents that interact."""
    base = small()
    return replace(
        base, model=replace(base.model, joint=True, addressed=True, num_tokens=12, polish=False),
        noise=replace(base.noise, final_target_ade_m=0.4),  # the mean over prefixes of which most are short
        # Another future of one agent would not fit the others' recorded ones.
        alternative_share=0.0, searched_share=0.125, teaching_weight=4.0, dropout_ratio=0.8, scenes_per_batch=8,
        agents_per_scene=8, learning_rate=1.5e-3, steps=7_000, validate_every=2_000, gate_spread=Spread.BOTH,
    )  # fmt: skip


def paper() -> TrainingConfig:
    """The paper's single-agent WOMD model (appendix A.3): about 70M samples."""
    model = ModelConfig(
        features=FeatureConfig(points_per_segment=20, segment_length_m=20.0),
        width=256, heads=8, feed_forward=2048, scene_layers=6, encoder_layers=6, decoder_layers=6, relation_width=64,
        max_scene_tokens=768, neighbours=16, reachability=False, feedback=False,
        spline_points=None, correction_width=0, prior=False,
    )  # fmt: skip
    return TrainingConfig(
        model=model, noise=NoiseConfig(target_ade_m=0.6, max_sigma=10.0), nested_dropout=NestedDropout.SAMPLED,
        mirror=False, balance=False,
        steps=1_100_000, scenes_per_batch=16, agents_per_scene=4, learning_rate=1e-5, warm_up=0.0,
        validate_every=10_000, checkpoint_every=2_000,
    )  # fmt: skip


def paper_nuplan() -> TrainingConfig:
    """The paper's nuPlan model: ego-history dropout, collision loss, about 300M samples."""
    base = paper()
    features = FeatureConfig(points_per_segment=20, segment_length_m=20.0, history_steps=21)
    return replace(
        base, model=replace(base.model, features=features), steps=4_700_000, history_dropout=0.5, collision_weight=1.0
    )


def paper_joint() -> TrainingConfig:
    """The paper's multi-agent WOMD model (appendix A.2): 12 tokens, about 300M samples."""
    base = paper()
    return replace(
        base, model=replace(base.model, joint=True, num_tokens=12), steps=4_700_000, agents_per_scene=8,
        scenes_per_batch=8,
    )  # fmt: skip


def closed_loop() -> TrainingConfig:
    """`small` for closed-loop driving."""
    return replace(small(), history_dropout=0.5, collision_weight=0.2)


def additions(config: TrainingConfig) -> dict[str, bool]:
    """What is ours and not the paper's, and whether it is switched on; the order is that of the ablation table."""
    model = config.model
    return {
        "one scene encoding for all agents, by relative poses": True,
        "tightening noise target": config.noise.final_target_ade_m is not None,
        "orthogonal steps": config.optimiser == Optimiser.ORTHOGONAL,
        "search in the loop": config.searched_share > 0,
        "feedback to the encoder": model.feedback,
        "preview of the next token": model.preview,
        "polish of continuous codes": model.polish,
        "gate by the smaller standard deviation": config.gate_spread == Spread.LEAST,
        "prior over codes": model.prior and config.prior_weight > 0,
        "map correction": model.correction_width > 0,
        "spline with fixed start and smooth end": model.spline_points is not None,
        "reachability input": model.reachability,
        "rounded share": config.noise.rounded_share > 0,
        "path loss": config.path_weight > 0,
        "acceleration loss": config.acceleration_weight > 0,
        "realism loss": config.realism_weight > 0,
        "alternative futures": config.alternative_share > 0,
        "mirroring": config.mirror,
        "balancing": config.balance,
        "expected nested dropout": config.nested_dropout == NestedDropout.EXPECTED,
        "slower decay of nested dropout": config.dropout_ratio > 0.5,
        "addressed tokens": model.addressed,
        "collision loss of joint futures": model.joint and config.collision_weight > 0,
    }


RECIPES: dict[str, Callable[[], TrainingConfig]] = {
    "tiny": tiny,
    "small": small,
    "small-paper": small_paper,
    "small-joint": small_joint,
    "paper": paper,
    "paper-nuplan": paper_nuplan,
    "paper-joint": paper_joint,
    "closed-loop": closed_loop,
}


def override(config: TrainingConfig, settings: Sequence[str]) -> TrainingConfig:
    """Changes fields of the configuration by settings such as `noise.target_ade_m=0.8`; names and types are checked.

    tyro is not used for this: on an error it prints a box and exits, and it does not list the available names.
    """
    content = config_as_json(config)
    for setting in settings:
        name, equals, text = (part.strip() for part in setting.partition("="))
        if not equals:
            raise TrainingError(f"the setting {setting!r} has no '=', expected one such as model.width=128")
        *path, field_name = name.split(".")
        group: Any = content
        for part in path:
            group = group.get(part) if isinstance(group, dict) else None
        if not isinstance(group, dict):
            raise TrainingError(f"there is no group of settings {'.'.join(path)!r}; available: {', '.join(content)}")
        if field_name not in group or isinstance(group[field_name], dict):
            where = ".".join(path) or "the recipe"
            raise TrainingError(f"there is no setting {field_name!r} in {where}; available: {', '.join(group)}")
        group[field_name] = _parse(text)
    try:
        return config_from_json(TrainingConfig, content)  # all at once: fields may only fit together
    except ValueError as error:
        raise TrainingError(f"the settings do not fit: {error}") from error


def config_as_json(config: TrainingConfig) -> dict[str, Any]:
    """The configuration as JSON holds it."""
    content: dict[str, Any] = json.loads(json.dumps(asdict(config)))
    return content


def config_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Differences between two configurations as nested dictionaries, one phrase per field."""
    found = []
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found += [f"{name}.{phrase}" for phrase in config_changes(old, new)]
        elif old != new:
            found.append(f"{name} is {old}, asked for {new}")
    return found


def check_fit(dataset: Dataset, features: FeatureConfig) -> None:
    """Raises `TrainingError` for a dataset that is empty or has another time step than the model."""
    if len(dataset) == 0:
        raise TrainingError(f"{dataset.folder} has no scenes")
    dt_s = dataset[0].dt_s
    if not np.isclose(dt_s, features.dt_s):
        raise TrainingError(
            f"the scenes of {dataset.folder} have steps of {dt_s:g} s, the model expects {features.dt_s:g} s"
        )


def _parse(text: str) -> Any:
    """A number, true, false or none; any other text as it is."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
