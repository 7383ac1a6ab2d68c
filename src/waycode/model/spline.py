"""Smooth trajectories from few numbers: clamped cubic B-splines over the horizon, as constant matrices.

One output per step at 10 Hz gives noisy curvature and jerk. A spline is smooth by construction, starts at the agent,
and needs a tenth of the outputs. C control points, T steps.
"""

import numpy as np
import torch
from jaxtyping import Float
from scipy.interpolate import BSpline
from torch import Tensor

DEGREE = 3


def basis(num_points: int, *, steps: int) -> Float[Tensor, "T C"]:
    """Weight of each control point at the fractions 1/T, 2/T, ..., 1 of the horizon."""
    return basis_at(torch.arange(1, steps + 1) / steps, num_points)


def basis_at(fractions: Float[Tensor, " n"], num_points: int) -> Float[Tensor, "n C"]:
    """Weight of each control point at the given fractions of the horizon."""
    design = BSpline.design_matrix(fractions.double().numpy(), _knots(num_points), DEGREE)
    return torch.from_numpy(design.toarray()).float()


def control_times(num_points: int) -> Float[Tensor, " C"]:
    """Fraction of the horizon at which each control point acts (Greville abscissae)."""
    knots = _knots(num_points)
    return torch.tensor([knots[i + 1 : i + 1 + DEGREE].mean() for i in range(num_points)]).float()


def smooth_end(num_points: int) -> Float[Tensor, "C C"]:
    """Matrix that moves the last control point half way to where the jerk of the last piece is zero.

    The last control point alone determines the last half second, and the training losses hardly depend on it: left
    free, one trajectory in fifty ends with a jolt. Moved all the way, the ends of trajectories would miss their lanes.
    """
    knots = _knots(num_points)
    third = np.array([BSpline(knots, one, DEGREE).derivative(DEGREE)(1 - 1e-6) for one in np.eye(num_points)])
    without_jerk = -third / third[-1]
    without_jerk[-1] = 0.0
    matrix = np.eye(num_points)
    matrix[-1] = (matrix[-1] + without_jerk) / 2
    return torch.from_numpy(matrix).float()


def _knots(num_points: int) -> np.ndarray:
    inner = np.linspace(0, 1, num_points - DEGREE + 1)
    return np.concatenate([np.zeros(DEGREE), inner, np.ones(DEGREE)])
