"""What the predicted spread is worth: the thresholds of the variance gate, and the risk-coverage table (A5)."""

import numpy as np
from jaxtyping import Float

from waycode.evaluation.reconstruction import AgentErrors

THRESHOLD_QUANTILE = 0.95
COVERAGES = (0.05, 0.15, 0.20, 0.35, 0.65, 0.80, 0.95, 1.0)


def sigma_max_m(errors: AgentErrors, *, column: str = "greedy N_l = 2") -> dict[int, float]:
    """Per number of tokens, the final standard deviation that most good reconstructions stay below."""
    spread = errors.final_std_m[column]
    return {count + 1: float(np.quantile(spread[:, count], THRESHOLD_QUANTILE)) for count in range(spread.shape[1])}


def risk_coverage(
    final_error_m: Float[np.ndarray, " R"], final_std_m: Float[np.ndarray, " R"]
) -> list[tuple[float, float]]:
    """(share of agents, their mean final error), taking the most certain predictions first."""
    known = np.isfinite(final_error_m)
    order = np.argsort(final_std_m[known], kind="stable")
    sorted_error = final_error_m[known][order]
    return [
        (coverage, float(sorted_error[: max(1, round(coverage * len(sorted_error)))].mean())) for coverage in COVERAGES
    ]
