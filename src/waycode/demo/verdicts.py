"""Did the plan do what was asked? Measured on the trajectory, by other means than the cost that was searched with."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from waycode.demo.casting import LANE_CHANGES, Actor
from waycode.planner import Plan
from waycode.scene import Scene
from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import arclengths, project
from waycode.scene.manoeuvre import Manoeuvre, classify

LEFT_TURN_DEG, TURN_SPACING_M = (45.0, 135.0), 1.0
GOAL_M = 2.0  # within this distance a goal counts as reached (the miss threshold of motion forecasting)
SLOW_MPS, SLOW_FOR_S = 5.5, 3.0  # the 5 m/s asked for, and a tenth
ROUTE_M = 2.5  # how far from the centre of its lanes one is still on the route
PROGRESS_SHARE = 0.7  # of the recorded way


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether a plan did it, and what was measured, as the second half of a sentence that begins with "it"."""

    did: bool
    measured: str


def reached_goal(actor: Actor, plan: Plan) -> Verdict:
    """The goal is where the recording ends."""
    off_m = float(np.linalg.norm(plan.position_in(actor.scene)[-1] - actor.recorded_m[-1]))
    return Verdict(did=off_m <= GOAL_M, measured=f"ends {off_m:.1f} m from the goal")


def does_turn_left(actor: Actor, plan: Plan) -> Verdict:
    """It turns by 45 to 135 degrees (more would be a U-turn) and ends on a lane."""
    turn, on_lane = net_turn_deg(actor, plan), _ends_on_lane(actor, plan)
    side = "left" if turn > 0 else "right"
    return Verdict(
        did=LEFT_TURN_DEG[0] <= turn <= LEFT_TURN_DEG[1] and on_lane,
        measured=f"turns {abs(turn):.0f}° to the {side} and ends {'on' if on_lane else 'off'} the lanes",
    )


def carries_left_turn(actor: Actor, plan: Plan) -> Verdict:
    """It turns left; tokens of another scene are not asked to end on a lane of this one, but it is said."""
    verdict, turn = does_turn_left(actor, plan), net_turn_deg(actor, plan)
    return replace(verdict, did=LEFT_TURN_DEG[0] <= turn <= LEFT_TURN_DEG[1])


def net_turn_deg(actor: Actor, plan: Plan) -> float:
    """Change of direction, left positive, seen at points a metre apart: who crawls has no direction."""
    now = actor.scene.tracks.position_m[actor.agent, [actor.scene.current_step]]
    points = [now[0]]
    for point in plan.position_in(actor.scene):
        if np.linalg.norm(point - points[-1]) >= TURN_SPACING_M:
            points.append(point)
    if len(points) < 2:
        return 0.0
    steps = np.diff(np.array(points, np.float64), axis=0)
    heading = np.arctan2(steps[:, 1], steps[:, 0])
    return float(np.degrees(wrap_angle(np.diff(heading, prepend=_start_rad(actor))).sum()))


def does_change_left(actor: Actor, plan: Plan) -> Verdict:
    """Classified as a recorded track would be, it changes to the left, and it ends on a lane."""
    found, on_lane = _manoeuvre(actor, plan), _ends_on_lane(actor, plan)
    return Verdict(did=found == Manoeuvre.LANE_CHANGE_LEFT and on_lane, measured=_lane_words(found, on_lane))


def keeps_lane(actor: Actor, plan: Plan) -> Verdict:
    """Classified as a recorded track would be, it changes no lane, and it ends on one."""
    found, on_lane = _manoeuvre(actor, plan), _ends_on_lane(actor, plan)
    return Verdict(did=found not in LANE_CHANGES and on_lane, measured=_lane_words(found, on_lane))


def _lane_words(found: Manoeuvre, on_lane: bool) -> str:
    changes = "changes lanes" if found in LANE_CHANGES else "changes no lane"
    return f"{changes} (its way counts as “{found}”) and ends {'on' if on_lane else 'off'} the lanes"


def slows_down(actor: Actor, plan: Plan) -> Verdict:
    late = plan.time_s > plan.time_s[-1] - SLOW_FOR_S
    speed, recorded = float(plan.speed_mps[late].max()), float(actor.recorded_speed_mps[late].max())
    return Verdict(
        did=speed <= SLOW_MPS,
        measured=f"drives at most {speed:.1f} m/s in the last {SLOW_FOR_S:g} s, where the recorded car "
        f"reached {recorded:.1f} m/s",
    )


def follows_route(actor: Actor, plan: Plan) -> Verdict:
    """It stays on the lanes of its route and comes nearly as far as the recorded car, or further."""
    position_m = plan.position_in(actor.scene).astype(np.float64)
    off_m = float(_off_route_m(actor.scene, position_m).max())
    share = float(arclengths(position_m)[-1] / arclengths(actor.recorded_m)[-1])
    return Verdict(
        did=off_m <= ROUTE_M and share >= PROGRESS_SHARE,
        measured=f"is never more than {off_m:.1f} m off the lanes of its route and drives {share:.0%} as far as the "
        "recorded car",
    )


def with_plan(scene: Scene, agent: int, plan: Plan) -> Scene:
    """The scene in which the road user drives the plan instead of what was recorded."""
    tracks, now, count = scene.tracks, scene.current_step, len(plan.time_s)
    arrays = {name: getattr(tracks, name).copy() for name in ("x_m", "y_m", "heading_rad", "vx_mps", "vy_mps", "valid")}
    future = slice(now + 1, now + 1 + count)
    count = len(arrays["valid"][agent, future])  # the recording may end before the plan
    arrays["x_m"][agent, future], arrays["y_m"][agent, future] = plan.position_in(scene)[:count].T
    arrays["heading_rad"][agent, future] = plan.heading_rad[:count]
    arrays["vx_mps"][agent, future] = (plan.speed_mps * np.cos(plan.heading_rad))[:count]
    arrays["vy_mps"][agent, future] = (plan.speed_mps * np.sin(plan.heading_rad))[:count]
    arrays["valid"][agent, now + 1 :] = False
    arrays["valid"][agent, future] = True
    return replace(scene, tracks=replace(tracks, **arrays))


def _manoeuvre(actor: Actor, plan: Plan) -> Manoeuvre:
    """The plan classified as if it had been recorded."""
    return classify(with_plan(actor.scene, actor.agent, plan))[actor.agent]


def _ends_on_lane(actor: Actor, plan: Plan) -> bool:
    end_m, heading = plan.position_in(actor.scene)[-1:], plan.heading_rad[-1:]
    return bool(actor.lanes.lane_at(end_m, heading)[0] >= 0)


def _off_route_m(scene: Scene, position_m: Float[np.ndarray, "T 2"]) -> Float[np.ndarray, " T"]:
    lanes = [] if scene.route is None else scene.route.lanes.tolist()
    lines = [scene.map.lanes.centrelines[lane].astype(np.float64) for lane in lanes]
    return np.min([np.abs(project(position_m, line)[1]) for line in lines], axis=0)


def _start_rad(actor: Actor) -> float:
    return float(actor.scene.tracks.heading_rad[actor.agent, actor.scene.current_step])
