"""Drives exported scenarios in nuplan-devkit's own loop with several planners, scored by the devkit and by us.

    PYTHONPATH=DEVKIT:GARAGE python benchmarks/nuplan_devkit.py ROOT --planners original-pdm pdm-closed latent \
        --out results.json

ROOT is what `waycode data export --to nuplan` wrote; docs/nuplan.md says how to get DEVKIT and GARAGE. `original-pdm`
is PDM-Closed of tuplan_garage (github.com/autonomousvision/tuplan_garage), unchanged; the others are planners of
`waycode simulate`. The results are written after every scenario, and scenarios in the file are not driven again.
"""

import argparse
import json
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from waycode.simulation.metrics import score_run
from waycode.simulation.nuplan import WaycodePlanner
from waycode.simulation.nuplan.devkit import Devkit, DevkitRun, history_of
from waycode.simulation.registry import DriverSpec

ORIGINAL = "original-pdm"


def build_planner(name: str) -> Any:
    """A planner of the devkit's interface."""
    if name != ORIGINAL:
        driver = DriverSpec(name=name).build(None)  # type: ignore[arg-type]
        # PDM-Closed brakes for the end of its route, so it needs to see all of it, as the original does.
        if name == "pdm-closed":
            return WaycodePlanner(planner=driver, map_radius_m=400.0, map_renewed_m=300.0)
        return WaycodePlanner(planner=driver)
    from nuplan.planning.simulation.trajectory.trajectory_sampling import TrajectorySampling
    from tuplan_garage.planning.simulation.planner.pdm_planner.pdm_closed_planner import PDMClosedPlanner
    from tuplan_garage.planning.simulation.planner.pdm_planner.proposal.batch_idm_policy import BatchIDMPolicy

    # The values of its pdm_closed_planner.yaml.
    policies = BatchIDMPolicy(
        speed_limit_fraction=[0.2, 0.4, 0.6, 0.8, 1.0],
        fallback_target_velocity=15.0,
        min_gap_to_lead_agent=1.0,
        headway_time=1.5,
        accel_max=1.5,
        decel_max=3.0,
    )
    return PDMClosedPlanner(
        trajectory_sampling=TrajectorySampling(num_poses=80, interval_length=0.1),
        proposal_sampling=TrajectorySampling(num_poses=40, interval_length=0.1),
        idm_policies=policies,
        lateral_offsets=[-1.0, 1.0],
        map_radius=50,
    )


def result_of(run: DevkitRun, kit: Devkit) -> dict[str, Any]:
    """Both scores of a run."""
    ours = score_run(history_of(run, kit.read(run.scenario)))
    return {
        "score": run.score,
        "metrics": run.metrics,
        "our_score": ours.score,
        "our_metrics": {name: result.score for name, result in ours.metrics.items()},
        "steps": len(run.history.data) - 1,
        "planning_ms": {
            "median": 1e3 * float(np.median(run.planning_s)),
            "p95": 1e3 * float(np.percentile(run.planning_s, 95)),
        },
        "reasons": [f"{reason.time_s:.1f} s: {reason.description}" for reason in ours.reasons()],
    }


def summary_of(results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Means over the scenarios that all planners have finished; failed runs score 0."""
    names = sorted(set.intersection(*(set(runs) for runs in results.values())))
    means: dict[str, Any] = {"scenarios": len(names)}
    for planner, runs in results.items():
        done = [runs[name] for name in names]

        def percent(values: list[float]) -> float:
            return round(100 * float(np.mean(values)), 2)

        means[planner] = {
            "CLS": percent([run.get("score", 0.0) for run in done]),
            "S-CR": percent([run.get("metrics", {}).get("no_at_fault_collision", 0.0) for run in done]),
            "S-PR": percent([run.get("metrics", {}).get("progress", 0.0) for run in done]),
            "failed": sum("failure" in run for run in done),
            "median_step_ms": round(
                float(np.median([run["planning_ms"]["median"] for run in done if "score" in run])), 1
            ),
            "largest_difference_of_scores": max(
                (abs(run["score"] - run["our_score"]) for run in done if "score" in run), default=None
            ),
        }
    return means


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path, help="folder with nuPlan logs and maps")
    parser.add_argument("--planners", nargs="+", default=[ORIGINAL, "pdm-closed", "latent"])
    parser.add_argument("--scenes", type=int, nargs="*", help="indices of the scenarios; all by default")
    parser.add_argument("--reactive", action="store_true", help="the other agents react (IDM)")
    parser.add_argument("--out", type=Path, required=True, help="JSON file of the results")
    given = parser.parse_args()
    kit = Devkit(given.root, reactive=given.reactive)
    results: dict[str, dict[str, Any]] = {name: {} for name in given.planners}
    if given.out.exists():
        results |= json.loads(given.out.read_text())["results"]
    for scenario in [kit.scenarios[index] for index in given.scenes or range(len(kit.scenarios))]:
        for name in given.planners:
            if scenario.log_name in results[name]:
                continue
            try:
                found = result_of(kit.drive(scenario, build_planner(name)), kit)
            except Exception as error:  # a planner may fail in any way; the devkit would count the scenario as failed
                traceback.print_exc()
                found = {"failure": f"{type(error).__name__}: {error}"}
            results[name][scenario.log_name] = found
            print(f"{scenario.log_name} {name}: {found.get('score', found.get('failure'))}", flush=True)
            written = {"data": str(given.root.name), "reactive": given.reactive, "results": results}
            given.out.write_text(json.dumps({"summary": summary_of(results), **written}, indent=1) + "\n")
    print(json.dumps(summary_of(results), indent=1))


if __name__ == "__main__":
    main()
