"""Pictures of scenes, and of searches in them.

`save_scene_picture` and `save_contact_sheet` write files; `draw_scene` draws into axes of your own. The layers
(`draw_map`, `draw_signals`, `draw_tracks`, `draw_trajectory`) are there for pictures that show something else on top.
`save_plan_picture` shows a search token by token, `save_outcomes_picture` what was found in several scenes.
Nothing here touches pyplot or any other state of the process.
"""

from waycode.plotting.map_layers import draw_map, draw_route
from waycode.plotting.plan_layers import Stage
from waycode.plotting.plan_picture import Outcome, save_outcomes_picture, save_plan_picture
from waycode.plotting.scene_picture import draw_scene, new_axes, save_contact_sheet, save_scene_picture
from waycode.plotting.signal_layers import draw_signals
from waycode.plotting.style import Style
from waycode.plotting.track_layers import draw_tracks, draw_trajectory
from waycode.plotting.viewport import PlottingError, Viewport, view_of

__all__ = [
    "Outcome",
    "PlottingError",
    "Stage",
    "Style",
    "Viewport",
    "draw_map",
    "draw_route",
    "draw_scene",
    "draw_signals",
    "draw_tracks",
    "draw_trajectory",
    "new_axes",
    "save_contact_sheet",
    "save_outcomes_picture",
    "save_plan_picture",
    "save_scene_picture",
    "view_of",
]
