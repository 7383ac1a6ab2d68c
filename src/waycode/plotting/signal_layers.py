"""The traffic lights."""

from collections import defaultdict

import numpy as np
from matplotlib.axes import Axes

from waycode.plotting.map_layers import lane_width_m
from waycode.plotting.shapes import Points, stroke
from waycode.plotting.style import Layer, Style
from waycode.plotting.viewport import points_per_metre, width_pt
from waycode.scene import Scene, SignalState
from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import directions, interpolate, project

SAME_PLACE_M = 0.5


def draw_signals(axes: Axes, scene: Scene, *, step: int | None = None, style: Style | None = None) -> None:
    """Draws the traffic lights as bars across their lanes, in the colour that they show at the step.

    Where lights for different ways on stand at one place and disagree, they share the bar, the left turn at the left.
    """
    style = style or Style()
    step = scene.current_step if step is None else step
    thickness = width_pt(axes, 0.7, least_pt=2.2)
    casing = thickness + max(1.2, 0.25 * points_per_metre(axes))
    for group in _same_place(scene):
        bar = _across(scene, group[0], style)
        stroke(axes, [bar], colour=style.ink, width=casing, layer=Layer.SIGNALS, cap="round")
        group.sort(key=lambda index: -_turn_rad(scene, index))
        colours = list(dict.fromkeys(_colour(scene, index, step, style) for index in group))
        ends = np.linspace(bar[0], bar[1], len(colours) + 1)
        for position, colour in enumerate(colours):
            piece = ends[position : position + 2]
            stroke(axes, [piece], colour=colour, width=thickness, layer=Layer.SIGNALS, cap="round")


def _same_place(scene: Scene) -> list[list[int]]:
    """Indices of the lights, together where they stand at one place."""
    groups: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for index, (x, y) in enumerate(np.round(scene.signals.stop_point_m / SAME_PLACE_M).astype(int).tolist()):
        groups[x, y].append(index)
    return list(groups.values())


def _colour(scene: Scene, signal: int, step: int, style: Style) -> str:
    is_known = scene.signals.valid[signal, step]
    return style.signals[SignalState(int(scene.signals.states[signal, step])) if is_known else SignalState.UNKNOWN]


def _turn_rad(scene: Scene, signal: int) -> float:
    """How far the signalled lane turns to the left."""
    heading = directions(scene.map.lanes.centrelines[int(scene.signals.lanes[signal])])
    return float(wrap_angle(np.asarray(heading[-1] - heading[0], np.float64)))


def _across(scene: Scene, signal: int, style: Style) -> Points:
    """A line from left to right across the lane, where it comes nearest to the light's stop point."""
    lane = int(scene.signals.lanes[signal])
    centreline = scene.map.lanes.centrelines[lane].astype(np.float64)
    half_m = max(0.8, lane_width_m(scene.map.lanes, lane, style) / 2 - 0.55)
    along, _, segment = project(scene.signals.stop_point_m[signal][None].astype(np.float64), centreline)
    heading = directions(centreline)[segment[0]]
    normal = np.array([-np.sin(heading), np.cos(heading)])
    middle = interpolate(centreline, along)[0]
    return np.stack([middle + half_m * normal, middle - half_m * normal])
