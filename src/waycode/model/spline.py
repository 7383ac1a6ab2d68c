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
    return basis_at(torch.arange(1, steps + 1) / steps, num_points)


def basis_at(fractions: Float[Tensor, " n"], num_points: int) -> Float[Tensor, "n C"]:
    """Weight of each control point at some fractions of the horizon."""
    design = BSpline.design_matrix(fractions.double().numpy(), _knots(num_points), DEGREE)
    return torch.from_numpy(design.toarray()).float()


def control_times(num_points: int) -> Float[Tensor, " C"]:
    """The fraction of the horizon that each control point stands for (Greville abscissae)."""
    knots = _knots(num_points)
    return torch.tensor([knots[i + 1 : i + 1 + DEGREE].mean() for i in range(num_points)]).float()


def calm_end(num_points: int) -> Float[Tensor, "C C"]:
    """Moves the last control point half way to where it leaves the acceleration's change at zero in the last piece.

    The last control point alone says what happens in the last half second, and hardly anything that is measured in
    training depends on it: left free, one way in fifty ends with a jolt; all the way, ends would miss their lanes.
    """
    knots = _knots(num_points)
    third = np.array([BSpline(knots, one, DEGREE).derivative(DEGREE)(1 - 1e-6) for one in np.eye(num_points)])
    calm = -third / third[-1]
    calm[-1] = 0.0
    matrix = np.eye(num_points)
    matrix[-1] = (matrix[-1] + calm) / 2
    return torch.from_numpy(matrix).float()


def _knots(num_points: int) -> np.ndarray:
    inner = np.linspace(0, 1, num_points - DEGREE + 1)
    return np.concatenate([np.zeros(DEGREE), inner, np.ones(DEGREE)])
