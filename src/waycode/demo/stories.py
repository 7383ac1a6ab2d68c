"""What the demo asks for: one story per objective."""

from collections.abc import Callable
from dataclasses import dataclass

from waycode.demo import casting, verdicts
from waycode.demo.casting import Actor
from waycode.demo.verdicts import Verdict
from waycode.planner import Plan


@dataclass(frozen=True, kw_only=True)
class Story:
    """A wish, which road users it fits, and how to see whether it came true."""

    name: str  # of the picture's file too
    title: str
    asked: str  # whole sentences
    look: str
    criterion: str  # what the verdict calls done
    objective: Callable[[Actor], str]
    cast: Callable[[Actor], bool]
    verdict: Callable[[Actor, Plan], Verdict]
    has_goal: bool = False
    shows_route: bool = False
    shows_speed: bool = False


STORIES = (
    Story(
        name="goal",
        title="Reach a goal",
        asked="The objective knows one point: where the recorded car was after 8 s. It does not know the way there.",
        look="See how far apart the candidates of the first token lie, and how later tokens adjust what was chosen.",
        criterion="ends within 2 m of the goal",
        objective=lambda actor: "goal-point({:.2f}, {:.2f})".format(*actor.recorded_m[-1]),
        cast=casting.turned,
        verdict=verdicts.reached_goal,
        has_goal=True,
    ),
    Story(
        name="left_turn",
        title="Turn left instead",
        asked="The recorded car went another way, although its lane also leads into a left turn. The objective asks "
        "for a left turn: a change of heading, nothing about lanes.",
        look="Nothing in the objective knows where the road is. As far as the turn keeps to it, that comes from the "
        "decoder, which has learnt what cars do in such a scene.",
        criterion="turns left by 45° to 135° and ends on a lane",
        objective=lambda actor: "left-turn",
        cast=casting.could_turn_left,
        verdict=verdicts.does_turn_left,
    ),
    Story(
        name="no_lane_change",
        title="Stay in the lane",
        asked="The recorded car changed lanes. The objective asks for no lane change, and then for the middle of the "
        "lane.",
        look="Blue moves over; green should not.",
        criterion="its way is classified as anything but a lane change, and it ends on a lane",
        objective=lambda actor: "lane-change(0)",
        cast=casting.changed_lanes,
        verdict=verdicts.keeps_lane,
    ),
    Story(
        name="lane_change",
        title="Change lanes to the left",
        asked="The recorded car stayed in its lane, with a free choice of another one on its left. The objective asks "
        "for one lane change to the left.",
        look="The candidates of the first token fan out over the road; the later tokens adjust what was chosen.",
        criterion="its way is classified as a lane change to the left, and it ends on a lane",
        objective=lambda actor: "lane-change(1)",
        cast=casting.could_change_left,
        verdict=verdicts.does_change_left,
    ),
    Story(
        name="slow_down",
        title="Slow down",
        asked="The recorded car kept its speed. The objective asks for at most 5 m/s in the last 3 of 8 seconds.",
        look="On the green way the boxes should come closer together; the small chart shows both speeds over time.",
        criterion="is never faster than 5.5 m/s in the last 3 s",
        objective=lambda actor: "slow-down(5)",
        cast=casting.kept_speed,
        verdict=verdicts.slows_down,
        shows_speed=True,
    ),
    Story(
        name="route",
        title="Follow the route",
        asked="The objective asks for progress along the ego's route (the blue lanes), close to their middle.",
        look="Candidates that leave the blue lanes cost more, and so do those that stay behind.",
        criterion="never more than 2.5 m off the lanes of the route, and at least 70 % as far as the recorded car",
        objective=lambda actor: "route-following",
        cast=casting.has_winding_route,
        verdict=verdicts.follows_route,
        shows_route=True,
    ),
)

SWAP = Story(
    name="token_swap",
    title="Carry a manoeuvre into other scenes",
    asked="The left turn recorded in scene A, written as three tokens (those from which it is decoded best). The same "
    "tokens are then decoded for other cars with a left turn ahead. Nothing is searched for there.",
    look="The tokens say what to do; where that leads is up to the scene that they are decoded in.",
    criterion="turns left by 45° to 135°; to end on a lane is not asked for here, unlike for the searched left turn",
    objective=lambda actor: "",
    cast=casting.can_turn_left,
    verdict=verdicts.carries_left_turn,
)
