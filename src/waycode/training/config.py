"""How a model is trained; recipes are functions that return one of these."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from waycode.features import FeatureConfig
from waycode.model import ModelConfig


class NestedDropout(StrEnum):
    """How the decoder learns to do with fewer tokens (paper, sections 3.2 and A.3)."""

    SAMPLED = "sampled"  # the paper's: a random number of tokens per example
    EXPECTED = "expected"  # all numbers of tokens at once, weighted by their probability: the same mean, less variance
    OFF = "off"  # always all tokens


@dataclass(frozen=True, kw_only=True)
class NoiseConfig:
    """The adaptive noise of appendix A.4: sigma moves by (1 - gamma) * delta a step, up while ADE <= target."""

    target_ade_m: float = 1.0
    gamma: float = 0.9995
    delta: float = 0.01
    max_sigma: float = 1.0  # short runs would overshoot: more noise than this only eats capacity
    fixed_sigma: float | None = None  # the ablation: no adaptation
    # Share of the examples whose tokens are rounded to two levels instead (straight-through). Against noise alone the
    # encoder sends its first token again in the later ones; what is rounded needs no repetition, but a refinement.
    rounded_share: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.rounded_share <= 1:
            raise ValueError(f"rounded_share is {self.rounded_share}, expected 0 to 1")

    @property
    def rate_per_step(self) -> float:
        return (1 - self.gamma) * self.delta


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Everything that a run depends on but the data."""

    model: ModelConfig = field(default_factory=ModelConfig)
    noise: NoiseConfig = field(default_factory=NoiseConfig)
    nested_dropout: NestedDropout = NestedDropout.EXPECTED
    beta: float = 0.5  # of the beta-NLL
    steps: int = 10_000
    scenes_per_batch: int = 16
    agents_per_scene: int = 4
    learning_rate: float = 8e-4
    weight_decay: float = 0.02
    warm_up: float = 0.05  # share of the steps; then a cosine down to zero. 0 keeps the rate constant
    clip_norm: float = 1.0
    mirror: bool = True
    alternative_share: float = 0.0  # how often a car is taught another legal way in place of the recorded one
    history_dropout: float = 0.0  # how often the modelled agent's past is hidden (closed loop)
    path_weight: float = 0.0  # of the distance in metres beside the recorded path
    acceleration_weight: float = 0.0  # of the error of the acceleration in m/s2
    realism_weight: float = 0.0  # of what random codes decode to: off the lanes, over the edge, beyond a car's limits
    collision_weight: float = 0.0  # of the loss for driving into others (closed loop)
    seed: int = 0
    validate_every: int = 1000
    checkpoint_every: int = 250

    def __post_init__(self) -> None:
        for name in ("steps", "scenes_per_batch", "agents_per_scene", "validate_every", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected at least 1")
        for name in ("beta", "warm_up", "history_dropout", "alternative_share"):
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
    """The recipe of the shipped models, for two CPU cores."""
    return TrainingConfig(
        model=ModelConfig(),
        # 3e-4 a step, so that sigma rises early; with a target of 1.2 m it stood still at 0.2. A channel of amplitude 1
        # is used best by two levels from about 0.6 on, but such noise flips too many bits to be trusted: hence 0.5.
        noise=NoiseConfig(target_ade_m=2.0, gamma=0.97, delta=0.01, max_sigma=0.5),
        steps=7_500,
    )


def small_finish() -> TrainingConfig:
    """The last stage of the shipped models, with `--init`: tokens that refine each other, ways that can be driven.

    Half of the examples are rounded, and the losses of path and acceleration make up for what an error of a few
    decimetres in position hides: a way beside the lane, or one that no car could follow.
    """
    return replace(
        small(), noise=NoiseConfig(fixed_sigma=0.4, rounded_share=0.5), path_weight=1.0, acceleration_weight=0.3,
        realism_weight=12.0, alternative_share=0.8, steps=3_200, learning_rate=7e-4, validate_every=800,
    )  # fmt: skip


def paper() -> TrainingConfig:
    """The paper's single-agent WOMD model (appendix A.3): about 70M samples."""
    model = ModelConfig(
        features=FeatureConfig(points_per_segment=20, segment_length_m=20.0),
        width=256, heads=8, feed_forward=2048, scene_layers=6, encoder_layers=6, decoder_layers=6,
        max_scene_tokens=768, neighbours=16, correction_width=0,
    )  # fmt: skip
    return TrainingConfig(
        model=model, noise=NoiseConfig(target_ade_m=0.6, max_sigma=10.0), nested_dropout=NestedDropout.SAMPLED,
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


def closed_loop() -> TrainingConfig:
    """`small`, made robust for driving in a loop."""
    return replace(small(), history_dropout=0.5, collision_weight=0.2)


RECIPES: dict[str, Callable[[], TrainingConfig]] = {
    "tiny": tiny,
    "small": small,
    "small-finish": small_finish,
    "paper": paper,
    "paper-nuplan": paper_nuplan,
    "closed-loop": closed_loop,
}
