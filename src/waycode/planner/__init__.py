"""Planning: encode a scene once, then make many cheap plans.

`Planner.encode` returns a `View`; its methods `plan`, `beam`, `most_likely`, `sample`, `refine` and `decode` return
plans.
"""

from waycode.planner.codes import TokenCode
from waycode.planner.joint_plan import JointPlan
from waycode.planner.joint_view import JointView
from waycode.planner.manoeuvre_index import ManoeuvreIndex, RecordedManoeuvre, build_index
from waycode.planner.plan import Plan, PlannerError, PlanStatus
from waycode.planner.planner import Planner, recorded_agents
from waycode.planner.prior import CodePrior
from waycode.planner.view import View

__all__ = [
    "CodePrior",
    "JointPlan",
    "JointView",
    "ManoeuvreIndex",
    "Plan",
    "PlanStatus",
    "Planner",
    "PlannerError",
    "RecordedManoeuvre",
    "TokenCode",
    "View",
    "build_index",
    "recorded_agents",
]
