"""Networks, scenes and movements that the tests of features, model and search share; small enough for one core."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from scenes import traffic_scene
from waycode import Dataset, Scene
from waycode.features import Agents, Batch, Example, FeatureConfig, SceneFeatures, collate, extract
from waycode.model import Model, ModelConfig, SceneEmbedding, SceneTokens
from waycode.model.scene_encoder import MapPolylines
from waycode.scene import Polylines
from waycode.scene.frames import rotate, wrap_angle

torch.set_num_threads(1)  # the networks are so small that more threads only wait for each other

FEATURES = FeatureConfig(points_per_segment=6, segment_length_m=15.0, history_steps=5, future_steps=20)


def tiny_config(**changes: Any) -> ModelConfig:
    """A small configuration; neither prior nor feedback if it is not causal, no correction if it has no spline."""
    settings: dict[str, Any] = {
        "features": FEATURES, "width": 16, "heads": 2, "feed_forward": 32, "scene_layers": 2, "encoder_layers": 2,
        "decoder_layers": 3, "relation_width": 12, "max_scene_tokens": 40, "neighbours": 6, "spline_points": 6,
        "spread_points": 4, "nearby_polylines": 30, "prior": changes.get("causal", True),
        "feedback": changes.get("causal", True),
        "correction_width": 64 if changes.get("spline_points", 6) else 0,
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
                    inputs = parameter.shape[-1] if parameter.ndim else 1
                    parameter.copy_(torch.randn(parameter.shape) / max(1, inputs) ** 0.5)
    return model.eval()


@cache
def sample_scenes() -> tuple[Scene, ...]:
    """A scene of each kind that the package brings along."""
    return tuple(Dataset(Path(str(files("waycode") / "samples" / "sumo")))[::3])


@cache
def crowd(seed: int = 0) -> Scene:
    """Road users and lanes at random: no two distances are the same, so that nothing depends on ties."""
    return traffic_scene(seed, num_tracks=14, num_steps=40, num_lanes=12)


def observed(scene: Scene, count: int | None = None) -> list[int]:
    return [int(track) for track in np.flatnonzero(scene.tracks.valid[:, scene.current_step])[:count]]


def batch_of(*scenes: Scene, agents: int = 3, config: FeatureConfig = FEATURES) -> Batch:
    return collate([extract(scene, observed(scene, agents), config=config) for scene in scenes])


def futures_of(batch: Batch) -> tuple[Tensor, Tensor]:
    """The recorded futures, a row for each agent, and where they were observed."""
    return batch.future_m[batch.agents.mask], batch.future_valid[batch.agents.mask]


def seen_by(model: Model, batch: Batch) -> tuple[SceneTokens, SceneEmbedding]:
    embedding = model.encode_scene(batch.scene, batch.agents)
    return embedding.tokens, embedding


@torch.no_grad()
def model_and_embedding(**changes: Any) -> tuple[Model, SceneEmbedding]:
    """A model and three rows: two agents of one scene, and one of another whose second agent is padding."""
    model, batch = tiny_model(**changes), batch_of(crowd(), crowd(1), agents=2)
    mask = torch.tensor([[True, True], [True, False]])
    return model, model.encode_scene(batch.scene, replace(batch.agents, mask=mask))


def reconstruct(model: Model, batch: Batch) -> tuple[Tensor, Tensor]:
    """The latents of the recorded futures, and means and standard deviations of every prefix of them."""
    _, memory = seen_by(model, batch)
    latents = model.encode(*futures_of(batch), memory)
    return latents, torch.cat(model.decoder.decode_all_prefixes(latents, memory), dim=-1)


@torch.no_grad()
def outputs(model: Model, batch: Batch) -> dict[str, Tensor]:
    """Everything that the model computes of a batch with a row for each agent [R, ...]."""
    scene, memory = seen_by(model, batch)
    latents = model.encode(*futures_of(batch), memory)
    (mean, std), _ = model.decoder.decode_with_prior(latents, memory)
    prior = model.decoder.next_token_logits(latents, memory)
    return {
        "latents": latents, "mean": mean, "std": std, "prior": prior, "agent": scene.agent,
        "velocity": scene.velocity_mps,
    }  # fmt: skip


def assert_same_outputs(one: dict[str, Tensor], other: dict[str, Tensor], *, tolerance: float = 1e-9) -> None:
    """Equal in all that `outputs` computes; the default tolerance is for models in double precision."""
    torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)


AnyTensors = TypeVar("AnyTensors")


def in_double(tensors: AnyTensors) -> AnyTensors:
    """A dataclass of tensors, or of such dataclasses, in double precision.

    Outputs that must be equal then differ by rounding only, in the tenth digit.
    """
    assert is_dataclass(tensors)
    changed = {}
    for one in fields(tensors):
        value = getattr(tensors, one.name)
        if not isinstance(value, Tensor):
            value = in_double(value)
        changed[one.name] = value.double() if isinstance(value, Tensor) and value.is_floating_point() else value
    return replace(tensors, **changed)  # type: ignore[type-var]


def features_moved(batch: Batch, *, angle_rad: float, shift_m: tuple[float, float]) -> Batch:
    """The batch with all poses turned about the origin and then shifted."""

    def move(pose: Tensor) -> Tensor:
        x, y, heading = pose.unbind(dim=-1)
        cos, sin = np.cos(angle_rad), np.sin(angle_rad)
        turned = [cos * x - sin * y + shift_m[0], sin * x + cos * y + shift_m[1], heading + angle_rad]
        return torch.stack(turned, dim=-1)

    scene = batch.scene
    return replace(
        batch, scene=replace(scene, segment_pose=move(scene.segment_pose), track_pose=move(scene.track_pose))
    )


def padded(batch: Batch, *, segments: int = 0, tracks: int = 0, agents: int = 0) -> Batch:
    """The batch with this many masked places more, which hold ones instead of zeros: nothing may read them.

    The masked agents have a track that is there, but is not modelled.
    """

    def longer(tensor: Tensor, count: int, *, axis: int = 1, value: int = 1) -> Tensor:
        filler = False if tensor.dtype == torch.bool else value
        return functional.pad(tensor, [0, 0] * (tensor.ndim - axis - 1) + [0, count], value=filler)

    scene = {
        one.name: longer(getattr(batch.scene, one.name), segments if one.name.startswith("segment") else tracks)
        for one in fields(batch.scene)
    }
    another = min(int(batch.agents.track.max()) + 1, batch.scene.track_mask.shape[1] - 1)
    return Batch(
        scene=SceneFeatures(**scene),
        agents=Agents(
            track=longer(batch.agents.track, agents, value=another),
            mask=longer(batch.agents.mask, agents),
            reachability=longer(longer(batch.agents.reachability, agents), segments, axis=2),
        ),
        future_m=longer(batch.future_m, agents),
        future_valid=longer(batch.future_valid, agents),
        importance=longer(batch.importance, agents),
    )


def map_polylines(
    points_m: Tensor, *, is_lane: Tensor, is_edge: Tensor, reachability: Tensor | None = None
) -> MapPolylines:
    """Polylines [R, M, P, 2] of rows that each have a scene of their own, with the M polylines as its tokens."""
    return MapPolylines(
        points_m=points_m,
        is_lane=is_lane,
        is_edge=is_edge,
        reachability=torch.zeros_like(is_lane, dtype=points_m.dtype) if reachability is None else reachability,
        token=torch.arange(is_lane.numel()).view(is_lane.shape),
    )


def scene_tokens(
    tokens: Tensor, polylines: MapPolylines, *, velocity_mps: Tensor, relation: Tensor, mask: Tensor | None = None
) -> SceneTokens:
    """Hand-made scenes [B, S, d] with one agent each, whose token is the first."""
    return SceneTokens(
        tokens=tokens,
        mask=torch.ones(tokens.shape[:2], dtype=torch.bool) if mask is None else mask,
        relation=relation,
        row=torch.arange(len(tokens)),
        agent=tokens[:, 0],
        map=polylines,
        velocity_mps=velocity_mps,
    )


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
