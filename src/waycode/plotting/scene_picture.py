"""A whole scene as one picture, and several as a sheet."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from waycode.plotting.furniture import draw_legend, draw_scale_bar, draw_title
from waycode.plotting.map_layers import draw_map, draw_route
from waycode.plotting.signal_layers import draw_signals
from waycode.plotting.style import Style
from waycode.plotting.track_layers import draw_tracks
from waycode.plotting.viewport import PlottingError, view_of
from waycode.scene import Scene

PICTURE_TYPES = (".png", ".pdf", ".svg", ".jpg")
LEAST_TITLE_IN = 0.55  # two lines of text do not shrink with the picture


def new_axes(*, size_in: float = 10.0, style: Style | None = None) -> Axes:
    """Square axes of a figure of their own, with room for a title above and a legend below."""
    style = style or Style()
    side_in, legend_in, title_in = 0.95 * size_in, 0.05 * size_in, max(0.07 * size_in, LEAST_TITLE_IN)
    height_in = legend_in + side_in + title_in
    figure = Figure(figsize=(size_in, height_in), facecolor=style.paper)
    FigureCanvasAgg(figure)
    return figure.add_axes((0.025, legend_in / height_in, side_in / size_in, side_in / height_in))


def draw_scene(
    scene: Scene,
    axes: Axes | None = None,
    *,
    agent: str | None = None,
    radius_m: float | None = 60.0,
    step: int | None = None,
    trails: bool = True,
    title: bool = True,
    legend: bool = True,
    style: Style | None = None,
) -> Axes:
    """Draws the scene around a road user (the ego if none is named), or all of it if the radius is None.

    Draws into the axes given, or into those of a new figure (`axes.figure`); returns the axes.
    """
    style = style or Style()
    axes = axes or new_axes(style=style)
    step = scene.current_step if step is None else step
    view = view_of(scene, agent=agent, radius_m=radius_m, step=step)
    prepare_axes(axes, style)
    view.apply(axes)
    draw_map(axes, scene, style=style)
    draw_route(axes, scene, style=style)
    draw_signals(axes, scene, step=step, style=style)
    highlight = None if agent is None else scene.tracks.ids.index(agent)
    draw_tracks(axes, scene, step=step, trails=trails, highlight=highlight, style=style)
    draw_scale_bar(axes, style=style)
    if title:
        draw_title(axes, scene, step=step, style=style)
    if legend:
        draw_legend(axes, scene, step=step, style=style)
    return axes


def prepare_axes(axes: Axes, style: Style) -> None:
    """Plain ground without ticks, in a thin frame."""
    axes.set_facecolor(style.ground)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color("#d6d4ce")
        spine.set_linewidth(0.8)


def save_scene_picture(
    scene: Scene,
    path: str | Path,
    *,
    agent: str | None = None,
    radius_m: float | None = 60.0,
    step: int | None = None,
    trails: bool = True,
    size_in: float = 10.0,
    dots_per_inch: int = 120,
    style: Style | None = None,
) -> Path:
    """Writes one scene to a picture file and returns its path."""
    path = checked_path(path)
    axes = new_axes(size_in=size_in, style=style)
    draw_scene(scene, axes, agent=agent, radius_m=radius_m, step=step, trails=trails, style=style)
    _save(axes, path, dots_per_inch)
    return path


def save_contact_sheet(
    scenes: Sequence[Scene],
    path: str | Path,
    *,
    captions: Sequence[str] | None = None,
    columns: int | None = None,  # as many as make a square if None
    radius_m: float | None = 60.0,
    tile_in: float = 4.0,
    dots_per_inch: int = 120,
    style: Style | None = None,
) -> Path:
    """Writes several scenes side by side, each with its caption (its id if none are given)."""
    style = style or Style()
    path = checked_path(path)
    if not scenes:
        raise PlottingError("a contact sheet of 0 scenes was asked for, expected at least one")
    captions = [scene.id for scene in scenes] if captions is None else captions
    columns = min(len(scenes), columns or int(np.ceil(np.sqrt(len(scenes)))))
    rows = -(-len(scenes) // columns)
    width, height = columns * tile_in, rows * tile_in * 1.09
    figure = Figure(figsize=(width, height), facecolor=style.paper)
    FigureCanvasAgg(figure)
    for index, (scene, caption) in enumerate(zip(scenes, captions, strict=True)):
        row, column = divmod(index, columns)
        left, bottom = (column + 0.025) / columns, 1 - (row + 0.975) / rows
        axes = figure.add_axes((left, bottom, 0.95 / columns, 0.95 / 1.09 / rows))
        draw_scene(scene, axes, radius_m=radius_m, title=False, legend=False, style=style)
        axes.text(
            0.0, 1.015, _shortened(caption, int(11 * tile_in)), transform=axes.transAxes, fontsize=10,
            color=style.ink, fontweight="bold", ha="left", va="bottom",
        )  # fmt: skip
    _save(axes, path, dots_per_inch)
    return path


def _shortened(caption: str, length: int) -> str:
    return caption if len(caption) <= length else f"{caption[: length - 1]}…"


def checked_path(path: str | Path) -> Path:
    """The path, if a picture can be written to it; its folder is made if need be."""
    path = Path(path)
    if path.suffix.lower() not in PICTURE_TYPES:
        raise PlottingError(f"cannot draw to {path}: expected a file that ends in {', '.join(PICTURE_TYPES)}")
    if path.is_dir():
        raise PlottingError(f"cannot draw to {path}: it is a folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _save(axes: Axes, path: Path, dots_per_inch: int) -> None:
    figure = axes.get_figure(root=True)
    assert figure is not None  # noqa: S101 (axes always belong to a figure)
    figure.savefig(path, dpi=dots_per_inch)
