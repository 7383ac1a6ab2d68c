"""The one configuration of the autoencoder; the paper's ablations are settings of it, not copies of the code."""

from dataclasses import dataclass, field
from enum import StrEnum

from waycode.features import FeatureConfig


class Bottleneck(StrEnum):
    """What happens to the tokens in training (paper, section 3.1 and table 6)."""

    NOISE = "noise"  # tanh, then Gaussian noise: the paper's soft quantisation
    FSQ = "fsq"  # tanh, then rounding with a straight-through gradient: hard quantisation in training


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Sizes of the three transformers and of the code between them."""

    features: FeatureConfig = field(default_factory=FeatureConfig)
    width: int = 96
    heads: int = 4
    feed_forward: int = 384
    scene_layers: int = 2
    encoder_layers: int = 2
    decoder_layers: int = 3
    max_scene_tokens: int = 128  # the nearest map segments and road users that an agent sees
    neighbours: int | None = 16  # local attention in the scene encoder; None lets every token see every other
    registers: int = 1
    num_tokens: int = 3  # N
    token_dim: int = 3  # D
    causal: bool = True
    bottleneck: Bottleneck = Bottleneck.NOISE
    fsq_levels: int = 2
    # Control points of the trajectory's mean: a knot every 1.3 s of 8. Sixteen reconstruct no better and wiggle.
    spline_points: int = 9
    spread_points: int = 6  # control points of its standard deviation
    # Width of what puts control points right by the map next to them; 0 leaves them as they are, as in the paper.
    correction_width: int = 64

    def __post_init__(self) -> None:
        sizes = ("width", "heads", "feed_forward", "max_scene_tokens", "registers", "num_tokens", "token_dim")
        least = dict.fromkeys((*sizes, "encoder_layers", "decoder_layers"), 1) | {
            "scene_layers": 0, "fsq_levels": 2, "correction_width": 0,
        }  # fmt: skip
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise ValueError(f"{name} is {getattr(self, name)}, expected at least {bound}")
        if self.neighbours is not None and self.neighbours < 1:
            raise ValueError(f"neighbours is {self.neighbours}, expected at least 1, or None for all")
        if self.width % self.heads:
            raise ValueError(f"width is {self.width}, expected a multiple of heads ({self.heads})")
        if self.correction_width % 4:
            raise ValueError(f"correction_width is {self.correction_width}, expected a multiple of 4")
        if self.spline_points < 4 or self.spread_points < 4:
            raise ValueError("a cubic spline needs at least 4 control points")
