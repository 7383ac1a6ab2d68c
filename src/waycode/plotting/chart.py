"""How every chart of a report looks: paper, title, axes' names, a quiet grid."""

from matplotlib.axes import Axes

from waycode.plotting.style import Style


def finish_chart(axes: Axes, title: str, *, along: str, up: str, style: Style) -> None:
    """Title and names of the axes, which begin at 0; the legend is the caller's."""
    axes.set_facecolor(style.paper)
    axes.set_title(title, loc="left", fontsize=11, color=style.ink)
    axes.set_xlabel(along, color=style.ink)
    axes.set_ylabel(up, color=style.ink)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color=style.driveway, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=style.faint_ink, length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(style.driveway)
