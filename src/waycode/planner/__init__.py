"""Planning: encode a scene once, then ask for many cheap plans.

`Planner.encode` gives a `View`; `View.plan`, `.candidates` and `.decode` give a `Plan`.
"""

from waycode.planner.codes import TokenCode
from waycode.planner.errors import PlannerError
from waycode.planner.index import Entry, ManoeuvreIndex, build_index
from waycode.planner.judging import Objective
from waycode.planner.plan import Plan, PlanStatus
from waycode.planner.planner import Planner
from waycode.planner.view import View

__all__ = [
    "Entry",
    "ManoeuvreIndex",
    "Objective",
    "Plan",
    "PlanStatus",
    "Planner",
    "PlannerError",
    "TokenCode",
    "View",
    "build_index",
]
