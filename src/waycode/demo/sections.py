"""The sections of the page: the cases of `evaluation.guidance.TASKS` that each counts, and its texts."""

from dataclasses import dataclass

from waycode.evaluation.guidance import LEFT_TURN_UNAVAILABLE
from waycode.evaluation.selection import Group


@dataclass(frozen=True, kw_only=True)
class Section:
    """One objective on the page."""

    name: str
    title: str
    asked: str  # the recorded motion, and the motion that the objective asks for
    look: str  # hint for reading the picture
    criterion: str  # when a case counts as success
    measured: str  # the measures of the case in the picture, as a format string
    task: str  # a name of `TASKS`
    groups: tuple[Group, ...]  # the cases of the section
    beside: tuple[Group, ...] = ()  # other cases of the task, counted separately
    swaps_tokens: bool = False  # decode the tokens of a recorded left turn instead of a search
    show_turning: bool = False  # show the success with the largest recorded turn instead of the least cost
    show_goal: bool = False
    show_route: bool = False
    show_speeds: bool = False

    @property
    def picture(self) -> str:
        return f"{self.name}.png"

    @property
    def counted_as(self) -> str:
        """The command that counts the same plans by the same measure; "" if there is none."""
        return "" if self.swaps_tokens else f"waycode eval {self.task}"


SECTIONS = (
    Section(
        name="goal",
        title="Reach a goal",
        asked="The objective contains one point: the position of the recorded car after 8 s. It does not contain the "
        "path.",
        look="The candidates of the first token lie far apart; later tokens refine the chosen one.",
        criterion="ends within 2 m of the goal",
        measured="ends {final_error_m:.1f} m from the goal",
        task="goal",
        groups=(Group.GOAL,),
        show_turning=True,
        show_goal=True,
    ),
    Section(
        name="left_turn",
        title="Turn left instead",
        asked="The recorded car went straight over a crossing at which its lane also leads into a left turn. The "
        "objective asks for a change of heading to the left; it does not contain lanes.",
        look="The turn follows the road because the decoder has learnt how cars drive in such a scene.",
        criterion="turns left by more than 45° in all",
        measured="turns {leftward_turn_deg:.0f}° to the left",
        task="left-turn",
        groups=(Group.AVAILABLE,),
        beside=LEFT_TURN_UNAVAILABLE,
    ),
    Section(
        name="no_lane_change",
        title="Stay in the lane",
        asked="The recorded car changed to the lane on its left. The objective asks for no lane change, and then for "
        "the centre of the lane.",
        look="Blue changes lanes; green should not.",
        criterion="changes no lane, to either side",
        measured="is {centre_distance_m:.2f} m from the centre of its lane on average",
        task="lane-change",
        groups=(Group.ZERO,),
    ),
    Section(
        name="lane_change",
        title="Change lanes to the left",
        asked="The same cars. The objective asks for one lane change to the left; it does not use the recording.",
        look="The candidates of the first token fan out over the road; later tokens refine the chosen one.",
        criterion="changes to the left once and never to the right",
        measured="is {centre_distance_m:.2f} m from the centre of its lanes on average",
        task="lane-change",
        groups=(Group.ONE,),
    ),
    Section(
        name="slow_down",
        title="Slow down",
        asked="The recorded car kept a speed of about 9 m/s. The objective asks for at most 5 m/s in the last 3 of 8 "
        "seconds.",
        look="The green boxes should come closer together; the small chart shows both speeds over time.",
        criterion="is never faster than 5 m/s in the last 3 s",
        measured="drives at most {late_speed_mps:.1f} m/s in the last 3 s",
        task="slow-down",
        groups=(Group.STEADY,),
        show_speeds=True,
    ),
    Section(
        name="route",
        title="Follow the route",
        asked="The objective asks for progress along the ego's route (the blue lanes), close to their centre.",
        look="Candidates that leave the blue lanes cost more, and so do those that stay behind.",
        criterion="stays within 2.5 m of the lanes of the route and drives at least 70 % of the recorded distance",
        measured="is never more than {route_distance_m:.1f} m from the lanes of its route and drives "
        "{progress_ratio:.0%} of the recorded distance",
        task="route",
        groups=(Group.ROUTE,),
        show_turning=True,
        show_route=True,
    ),
    Section(
        name="token_swap",
        title="Carry a manoeuvre into other scenes",
        asked="Search finds the tokens that reconstruct the recorded left turn of scene A best. The same tokens are "
        "decoded, without search, for all cars that went straight where a left turn is available.",
        look="The same tokens give the same manoeuvre, along the roads of each scene.",
        criterion="turns left by more than 45° in all",
        measured="turns {leftward_turn_deg:.0f}° to the left",
        task="left-turn",
        groups=(Group.AVAILABLE,),
        swaps_tokens=True,
    ),
)
