"""Pictures of scenes and of searches.

`save_scene_picture` and `save_contact_sheet` write files; `draw_scene` draws into your own axes. The layers
(`draw_map`, `draw_route`, `draw_signals`, `draw_tracks`, `draw_trajectory`) are for pictures that add something on top.
`save_plan_picture` shows a search token by token, `save_comparison_picture` plans beside recorded paths.
Nothing here uses pyplot or any other global state.
"""

from waycode.plotting.map_layers import draw_map, draw_route, draw_signals
from waycode.plotting.plan_picture import (
    ComparisonPanel,
    SearchPanel,
    comparison_figure,
    plan_figure,
    save_comparison_picture,
    save_plan_picture,
)
from waycode.plotting.scene_picture import draw_scene, new_axes, png_of, save_contact_sheet, save_scene_picture
from waycode.plotting.style import Style
from waycode.plotting.track_layers import draw_tracks, draw_trajectory
from waycode.plotting.viewport import PlottingError, Viewport, scene_viewport

__all__ = [
    "ComparisonPanel",
    "PlottingError",
    "SearchPanel",
    "Style",
    "Viewport",
    "comparison_figure",
    "draw_map",
    "draw_route",
    "draw_scene",
    "draw_signals",
    "draw_tracks",
    "draw_trajectory",
    "new_axes",
    "plan_figure",
    "png_of",
    "save_comparison_picture",
    "save_contact_sheet",
    "save_plan_picture",
    "save_scene_picture",
    "scene_viewport",
]
