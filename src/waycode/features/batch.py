"""Joins the examples of several scenes into one padded batch; mirrors examples."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from waycode.features.extract import Example
from waycode.features.types import Agents, Batch, SceneFeatures

_SEGMENT_MULTIPLE, _TRACK_MULTIPLE = 32, 8
_HISTORY_SIGNS = np.array([1, -1, 1, -1, 1, -1, 1], np.float32)  # x, y, cos, sin, vx, vy, observed
_POINT_SIGNS = np.array([1, -1], np.float32)
_POSE_SIGNS = np.array([1, -1, -1], np.float32)  # x, y, heading


def collate(examples: Sequence[Example]) -> Batch:
    """Pads every axis to the longest of the batch; padding is zero and masked.

    Segments and tracks are padded further, to a multiple of 32 and 8: PyTorch caches memory for every new shape, and
    with a new shape in each batch a long run would slowly fill the memory.
    """
    if not examples:
        raise ValueError("got no examples to collate, expected at least 1")
    segments = [example.segments for example in examples]
    scene = SceneFeatures(
        segment_points_m=_padded([part.points_m for part in segments], multiple=_SEGMENT_MULTIPLE),
        segment_kind=_padded([part.kind for part in segments], multiple=_SEGMENT_MULTIPLE),
        segment_signal=_padded([part.signal for part in segments], multiple=_SEGMENT_MULTIPLE),
        segment_speed_limit=_padded([part.speed_limit for part in segments], multiple=_SEGMENT_MULTIPLE),
        segment_pose=_padded([part.pose for part in segments], multiple=_SEGMENT_MULTIPLE),
        segment_mask=_mask([len(part.kind) for part in segments], multiple=_SEGMENT_MULTIPLE),
        track_history=_padded([example.history for example in examples], multiple=_TRACK_MULTIPLE),
        track_size_m=_padded([example.size_m for example in examples], multiple=_TRACK_MULTIPLE),
        track_kind=_padded([example.track_kind for example in examples], multiple=_TRACK_MULTIPLE),
        track_pose=_padded([example.track_pose for example in examples], multiple=_TRACK_MULTIPLE),
        track_mask=_mask([len(example.track_kind) for example in examples], multiple=_TRACK_MULTIPLE),
    )
    agents = Agents(
        track=_padded([example.agents for example in examples]),
        mask=_mask([len(example.agents) for example in examples]),
        reachability=_padded_reachability(examples),
    )
    return Batch(
        scene=scene,
        agents=agents,
        future_m=_padded([example.future_m for example in examples]),
        future_valid=_padded([example.future_valid for example in examples]),
        importance=_padded([example.importance for example in examples]),
    )


def mirror(example: Example) -> Example:
    """The example mirrored at the x axis: left turns become right turns."""
    segments = example.segments
    return replace(
        example,
        segments=replace(segments, points_m=segments.points_m * _POINT_SIGNS, pose=segments.pose * _POSE_SIGNS),
        history=example.history * _HISTORY_SIGNS,
        track_pose=example.track_pose * _POSE_SIGNS,
        future_m=example.future_m * _POINT_SIGNS,
    )


def _padded(arrays: Sequence[np.ndarray], *, multiple: int = 1) -> Tensor:
    """[B, longest, ...] with zeros after the shorter arrays; at least 1 long, so that a softmax is never empty."""
    longest = _round_up(max(1, *(len(array) for array in arrays)), multiple)
    padded = np.zeros((len(arrays), longest, *arrays[0].shape[1:]), arrays[0].dtype)
    for row, array in enumerate(arrays):
        padded[row, : len(array)] = array
    return torch.from_numpy(padded)


def _padded_reachability(examples: Sequence[Example]) -> Tensor:
    """[B, A, S], padded along both agents and segments."""
    agents = max(1, *(len(example.agents) for example in examples))
    per_segment = [np.pad(example.reachability.T, ((0, 0), (0, agents - len(example.agents)))) for example in examples]
    return _padded(per_segment, multiple=_SEGMENT_MULTIPLE).transpose(1, 2)


def _mask(lengths: Sequence[int], *, multiple: int = 1) -> Tensor:
    longest = _round_up(max(1, *lengths), multiple)
    return torch.arange(longest, device="cpu")[None] < torch.tensor(lengths, device="cpu")[:, None]


def _round_up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple
