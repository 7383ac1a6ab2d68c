"""Smooth trajectories from few numbers: clamped cubic B-splines over the horizon, as constant matrices.

Raw points at 10 Hz make noisy curvature and jerk; a spline is smooth by construction, starts where the agent is, and
has an order of magnitude fewer outputs.
"""

import numpy as np
import torch
from jaxtyping import Float
from scipy.interpolate import BSpline
from torch import Tensor

DEGREE = 3


def basis(num_points: int, *, steps: int) -> Float[Tensor, "T C"]:
    """Weight of each of C control points at the fractions 1/T, 2/T, ..., 1 of the horizon."""
    knots = _knots(num_points)
    at = np.arange(1, steps + 1) / steps
    return torch.from_numpy(BSpline.design_matrix(at, knots, DEGREE).toarray()).float()


def control_times(num_points: int) -> Float[Tensor, " C"]:
    """The fraction of the horizon that each control point stands for (Greville abscissae)."""
    knots = _knots(num_points)
    return torch.tensor([knots[i + 1 : i + 1 + DEGREE].mean() for i in range(num_points)]).float()


def _knots(num_points: int) -> np.ndarray:
    inner = np.linspace(0, 1, num_points - DEGREE + 1)
    return np.concatenate([np.zeros(DEGREE), inner, np.ones(DEGREE)])
