"""Joins the arrays of several scenes into one padded batch."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from waycode.features.extract import Example
from waycode.features.types import Agents, Batch, Futures, SceneFeatures

SEGMENT_MULTIPLE, TRACK_MULTIPLE = 32, 8


def collate(examples: Sequence[Example]) -> Batch:
    """Pads every axis to the longest of the batch; what is padded is masked and zero.

    Map and road users are padded a little further, to a round number: PyTorch keeps something for every shape that it
    meets, and with a new shape in each batch a long run would slowly fill the memory.
    """
    if not examples:
        raise ValueError("got no examples to collate, expected at least 1")
    segments = [example.segments for example in examples]
    scene = SceneFeatures(
        segment_points_m=_padded([part.points_m for part in segments], to=SEGMENT_MULTIPLE),
        segment_kind=_padded([part.kind for part in segments], to=SEGMENT_MULTIPLE),
        segment_signal=_padded([part.signal for part in segments], to=SEGMENT_MULTIPLE),
        segment_speed_limit=_padded([part.speed_limit for part in segments], to=SEGMENT_MULTIPLE),
        segment_pose=_padded([part.pose for part in segments], to=SEGMENT_MULTIPLE),
        segment_mask=_mask([len(part.kind) for part in segments], to=SEGMENT_MULTIPLE),
        track_history=_padded([example.history for example in examples], to=TRACK_MULTIPLE),
        track_size_m=_padded([example.size_m for example in examples], to=TRACK_MULTIPLE),
        track_kind=_padded([example.track_kind for example in examples], to=TRACK_MULTIPLE),
        track_pose=_padded([example.track_pose for example in examples], to=TRACK_MULTIPLE),
        track_mask=_mask([len(example.track_kind) for example in examples], to=TRACK_MULTIPLE),
    )
    return Batch(
        scene=scene,
        agents=Agents(
            track=_padded([example.agents for example in examples]),
            mask=_mask([len(example.agents) for example in examples]),
            reach=_padded_reach(examples),
        ),
        futures=Futures(
            position_m=_padded([example.future_m for example in examples]),
            valid=_padded([example.future_valid for example in examples]),
        ),
    )


def _padded(arrays: Sequence[np.ndarray], *, to: int = 1) -> Tensor:
    """[B, longest, ...] with zeros at the end of the shorter ones; at least one long, so that softmax has a place."""
    longest = _round_up(max(1, *(len(array) for array in arrays)), to)
    padded = np.zeros((len(arrays), longest, *arrays[0].shape[1:]), arrays[0].dtype)
    for row, array in enumerate(arrays):
        padded[row, : len(array)] = array
    return torch.from_numpy(padded)


def _padded_reach(examples: Sequence[Example]) -> Tensor:
    """[B, A, S], zero where there is no agent or no segment."""
    agents = max(1, *(len(example.agents) for example in examples))
    per_segment = [np.zeros((len(example.segments.kind), agents), np.float32) for example in examples]
    for array, example in zip(per_segment, examples, strict=True):
        array[:, : len(example.agents)] = example.reach.T
    return _padded(per_segment, to=SEGMENT_MULTIPLE).transpose(1, 2)


def _mask(lengths: Sequence[int], *, to: int = 1) -> Tensor:
    longest = _round_up(max(1, *lengths), to)
    return torch.arange(longest)[None] < torch.tensor(lengths)[:, None]


def _round_up(count: int, to: int) -> int:
    return -(-count // to) * to
