"""Networks, scenes and movements that the tests of features, model and search share; small enough for one core."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scenes import traffic_scene
from waycode import Dataset, Scene
from waycode.features import Batch, Example, FeatureConfig, SceneFeatures, collate, extract
from waycode.model import Model, ModelConfig, SceneEmbedding, SceneTokens
from waycode.scene import Polylines
from waycode.scene.frames import rotate, wrap_angle

torch.set_num_threads(1)  # the networks are so small that more threads only wait for each other

FEATURES = FeatureConfig(points_per_segment=6, segment_length_m=15.0, history_steps=5, future_steps=20)


def tiny_config(**changes: Any) -> ModelConfig:
    settings: dict[str, Any] = {
        "features": FEATURES, "width": 16, "heads": 2, "feed_forward": 32, "scene_layers": 2, "encoder_layers": 2,
        "decoder_layers": 3, "max_scene_tokens": 40, "neighbours": 6, "spline_points": 6, "spread_points": 4,
    }  # fmt: skip
    return ModelConfig(**{**settings, **changes})


def tiny_model(seed: int = 0, **changes: Any) -> Model:
    """An untrained model, with weights large enough that every input shows in its output."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Model(tiny_config(**changes))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "norm" not in name:
                    parameter.copy_(torch.randn(parameter.shape) / max(1, parameter.shape[-1]) ** 0.5)
    return model.eval()


@cache
def sample_scenes() -> tuple[Scene, ...]:
    """A scene of each kind that the package brings along."""
    return tuple(Dataset(Path(str(files("waycode") / "samples" / "sumo")))[::3])


@cache
def crowd(seed: int = 0) -> Scene:
    """Road users and lanes at random: no two distances are the same, so that nothing hangs on ties."""
    return traffic_scene(seed, num_tracks=14, num_steps=40, num_lanes=12)


def observed(scene: Scene, count: int | None = None) -> list[int]:
    return [int(track) for track in np.flatnonzero(scene.tracks.valid[:, scene.current_step])[:count]]


def batch_of(*scenes: Scene, agents: int = 3, config: FeatureConfig = FEATURES) -> Batch:
    return collate([extract(scene, observed(scene, agents), config=config) for scene in scenes])


def futures_of(batch: Batch) -> tuple[Tensor, Tensor]:
    """What the agents did, a row for each, and where it was seen."""
    return batch.future_m[batch.agents.mask], batch.future_valid[batch.agents.mask]


def seen_by(model: Model, batch: Batch) -> tuple[SceneTokens, SceneEmbedding]:
    embedding = model.encode_scene(batch.scene, batch.agents)
    return embedding.tokens, embedding


def reconstruct(model: Model, batch: Batch) -> tuple[Tensor, Tensor]:
    """All that the model has to say of a batch: the latents, and means and deviations of every prefix."""
    scene, memory = seen_by(model, batch)
    latents = model.encode(*futures_of(batch), scene)
    return latents, torch.cat(model.decoder.decode_all_prefixes(latents, memory), dim=-1)


def random_latents(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def moved(scene: Scene, *, angle_rad: float, shift_m: tuple[float, float]) -> Scene:
    """The same scene, turned about the origin and then shifted."""
    return _changed(
        scene,
        point=lambda points: rotate(points, angle_rad) + np.asarray(shift_m),
        vector=lambda vectors: rotate(vectors, angle_rad),
        heading=lambda headings: wrap_angle(headings + angle_rad),
    )


def in_a_mirror(scene: Scene) -> Scene:
    """The same scene with left and right exchanged."""
    flip = np.array([1.0, -1.0])
    return _changed(
        scene, point=lambda points: points * flip, vector=lambda vectors: vectors * flip, heading=np.negative
    )


Change = Callable[[np.ndarray], np.ndarray]


def _changed(scene: Scene, *, point: Change, vector: Change, heading: Change) -> Scene:
    tracks, features, signals = scene.tracks, scene.map, scene.signals
    valid = tracks.valid

    def single(values: np.ndarray) -> np.ndarray:
        return np.asarray(values, np.float32)

    def lines(polylines: Polylines) -> Polylines:
        return Polylines(single(point(polylines.points_m.astype(np.float64))), polylines.starts)

    position = single(point(tracks.position_m.astype(np.float64))) * valid[..., None]
    velocity = single(vector(np.stack([tracks.vx_mps, tracks.vy_mps], axis=-1).astype(np.float64))) * valid[..., None]
    kinds = ("road_lines", "road_edges", "crosswalks", "speed_bumps", "driveways", "drivable_areas")
    others: dict[str, Any] = {kind: lines(getattr(features, kind)) for kind in kinds}
    return replace(
        scene,
        tracks=replace(
            tracks,
            x_m=position[..., 0], y_m=position[..., 1], vx_mps=velocity[..., 0], vy_mps=velocity[..., 1],
            heading_rad=single(heading(tracks.heading_rad.astype(np.float64))) * valid,
        ),
        map=replace(
            features,
            lanes=replace(features.lanes, centrelines=lines(features.lanes.centrelines)),
            stop_signs=replace(
                features.stop_signs, position_m=single(point(features.stop_signs.position_m.astype(np.float64)))
            ),
            **others,
        ),
        signals=replace(signals, stop_point_m=single(point(signals.stop_point_m.astype(np.float64)))),
    )  # fmt: skip


def assert_same_example(one: Example, other: Example, *, tolerance_m: float = 2e-4) -> None:
    """Equal up to rounding; angles up to whole turns."""
    for name in ("kind", "signal", "speed_limit"):
        np.testing.assert_array_equal(getattr(one.segments, name), getattr(other.segments, name), err_msg=name)
    for name in ("track_kind", "size_m", "agents", "future_valid"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    np.testing.assert_allclose(one.segments.points_m, other.segments.points_m, rtol=0, atol=tolerance_m)
    np.testing.assert_allclose(one.history, other.history, rtol=0, atol=tolerance_m)
    np.testing.assert_allclose(one.future_m, other.future_m, rtol=0, atol=tolerance_m)
    assert_same_poses(one.segments.pose, other.segments.pose, tolerance_m=tolerance_m)
    assert_same_poses(one.track_pose, other.track_pose, tolerance_m=tolerance_m)


def assert_same_poses(one: np.ndarray, other: np.ndarray, *, tolerance_m: float = 2e-4) -> None:
    np.testing.assert_allclose(one[:, :2], other[:, :2], rtol=0, atol=tolerance_m)
    np.testing.assert_allclose(wrap_angle(one[:, 2] - other[:, 2]), 0, atol=2e-4)


def without_map(scene: SceneFeatures) -> SceneFeatures:
    """The features with all segments masked out."""
    return replace(scene, segment_mask=torch.zeros_like(scene.segment_mask))


def one_row(batch: Batch, row: int) -> Batch:
    """The batch with only one of its agents."""
    scene, slot = (int(index[row]) for index in batch.agents.mask.nonzero(as_tuple=True))
    mask = torch.zeros_like(batch.agents.mask)
    mask[scene, slot] = True
    return replace(batch, agents=replace(batch.agents, mask=mask))
