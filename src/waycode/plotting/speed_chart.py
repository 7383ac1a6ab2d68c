"""A small chart in the corner of a panel: speed over time."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from waycode.plotting.style import Layer, Style

WIDTH, HEIGHT = 0.46, 0.3  # of the panel


def draw_speed_chart(
    axes: Axes, paths_m: Sequence[Float[np.ndarray, "_ 2"]], *, colours: Sequence[str], dt_s: float, style: Style
) -> Axes:
    """The speed along paths that begin now, by finite differences; the last one lies on top. Returns the chart."""
    left, bottom = _freest_corner(axes, paths_m)
    # Paper under the chart and its numbers, so that the road does not shine through.
    sheet = Rectangle((left, bottom), WIDTH, HEIGHT, transform=axes.transAxes, facecolor=style.paper, alpha=0.95)
    sheet.set_zorder(Layer.FURNITURE - 1)
    axes.add_patch(sheet)
    chart = axes.inset_axes(
        (left + 0.16 * WIDTH, bottom + 0.19 * HEIGHT, 0.76 * WIDTH, 0.6 * HEIGHT), zorder=Layer.FURNITURE
    )
    chart.set_facecolor(style.paper)
    for path_m, colour in zip(paths_m, colours, strict=True):
        speed_mps = np.linalg.norm(np.diff(path_m, axis=0), axis=1) / dt_s
        chart.plot(dt_s * np.arange(1, len(path_m)), speed_mps, color=colour, linewidth=2.0)
    chart.set_xlim(0, None)
    chart.set_ylim(0, None)
    chart.set_xticks(np.arange(0, max(map(len, paths_m)) * dt_s, 2.0))
    chart.set_title("m/s over seconds", fontsize=8.5, color=style.ink, loc="left", pad=3)
    chart.tick_params(labelsize=7.5, length=0, pad=2, colors=style.faint_ink)
    chart.grid(color=style.driveway, linewidth=0.7)
    for side, spine in chart.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(style.faint_ink)
    return chart


def _freest_corner(axes: Axes, paths_m: Sequence[Float[np.ndarray, "_ 2"]]) -> tuple[float, float]:
    """Lower left corner of the chart, as a share of the panel: where the fewest points of the paths are hidden."""
    points = axes.transLimits.transform(np.concatenate(list(paths_m)))
    inset = 0.012
    corners = [(1 - WIDTH - inset, 1 - HEIGHT - inset), (inset, 1 - HEIGHT - inset), (1 - WIDTH - inset, inset)]

    def hidden(corner: tuple[float, float]) -> int:
        inside = (points >= corner) & (points <= np.add(corner, (WIDTH, HEIGHT)))
        return int(inside.all(axis=1).sum())

    return min(corners, key=hidden)
