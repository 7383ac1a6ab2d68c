"""Pictures of one scene, and contact sheets of several."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from waycode.dataset.files import replace_file
from waycode.plotting.map_layers import draw_map, draw_route, draw_signals
from waycode.plotting.style import DEFAULT_STYLE, Layer, Style
from waycode.plotting.track_layers import draw_tracks
from waycode.plotting.viewport import PlottingError, scene_viewport, shown_bounds_m
from waycode.scene import Scene, SignalState, TrackType

_PICTURE_TYPES = (".png", ".pdf", ".svg", ".jpg")
_MIN_TITLE_IN = 0.55  # two lines of text do not shrink with the picture
_MAX_LETTERS = 200  # of a line of text from data
_SCALE_LENGTHS_M = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


class NotebookFigure(Figure):
    """A figure that notebooks show as a picture; they show matplotlib's own only if pyplot is imported."""

    def _repr_png_(self) -> bytes:
        return png_of(self)


def new_figure(width_in: float, height_in: float, *, style: Style) -> Figure:
    """An empty figure outside pyplot's global state."""
    figure = NotebookFigure(figsize=(width_in, height_in), facecolor=style.paper)
    FigureCanvasAgg(figure)
    return figure


def new_axes(*, size_in: float = 10.0, style: Style = DEFAULT_STYLE) -> Axes:
    """Square axes in a new figure of width `size_in`, with room for a title above and a legend below."""
    side_in, legend_in, title_in = 0.95 * size_in, 0.05 * size_in, max(0.07 * size_in, _MIN_TITLE_IN)
    height_in = legend_in + side_in + title_in
    figure = new_figure(size_in, height_in, style=style)
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
    style: Style = DEFAULT_STYLE,
) -> Axes:
    """Draws a scene and returns the axes.

    Args:
        scene: The scene.
        axes: Axes to draw into. None: those of a new figure (`axes.figure`).
        agent: Track id of the agent in the centre. None: the ego, else the first track to predict.
        radius_m: Distance from the centre to each side. None: the whole scene.
        step: Time step. None: the current step.
        trails: Whether to draw past and future of the road users.
        title: Whether to write the scene's id, source and tags above the picture.
        legend: Whether to explain the colours below the picture.
        style: Colours and widths.
    """
    axes = axes or new_axes(style=style)
    step = scene.current_step if step is None else step
    viewport = scene_viewport(scene, agent=agent, radius_m=radius_m, step=step)
    prepare_axes(axes, style)
    viewport.apply(axes)
    draw_map(axes, scene, style=style)
    draw_route(axes, scene, style=style)
    draw_signals(axes, scene, step=step, style=style)
    highlight = None if agent is None else scene.tracks.ids.index(agent)
    draw_tracks(axes, scene, step=step, trails=trails, highlight=highlight, style=style)
    draw_scale_bar(axes, style=style)
    if title:
        _draw_title(axes, scene, step, style)
    if legend:
        _draw_legend(axes, scene, step, style)
    return axes


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
    style: Style = DEFAULT_STYLE,
) -> Path:
    """Writes a scene to a .png, .pdf, .svg or .jpg file of width `size_in`; other arguments as in `draw_scene`."""
    path = prepare_path(path)
    axes = new_axes(size_in=size_in, style=style)
    draw_scene(scene, axes, agent=agent, radius_m=radius_m, step=step, trails=trails, style=style)
    return save_figure(axes, path, dots_per_inch=dots_per_inch)


def save_contact_sheet(
    scenes: Sequence[Scene],
    path: str | Path,
    *,
    captions: Sequence[str] | None = None,
    columns: int | None = None,
    radius_m: float | None = 60.0,
    tile_in: float = 4.0,
    dots_per_inch: int = 120,
    style: Style = DEFAULT_STYLE,
) -> Path:
    """Writes several scenes side by side.

    Args:
        scenes: At least one scene.
        path: A .png, .pdf, .svg or .jpg file; its folder is created.
        captions: A caption per scene. None: the scenes' ids.
        columns: Number of columns. None: as many as make the sheet square.
        radius_m: Distance from the ego to each side of a tile. None: whole scenes.
        tile_in: Side of a tile in inches.
        dots_per_inch: Resolution.
        style: Colours and widths.
    """
    path = prepare_path(path)
    if not scenes:
        raise PlottingError("got 0 scenes for a contact sheet, expected at least one")
    captions = [scene.id for scene in scenes] if captions is None else captions
    columns = min(len(scenes), columns or int(np.ceil(np.sqrt(len(scenes)))))
    rows = -(-len(scenes) // columns)
    figure = new_figure(columns * tile_in, rows * tile_in * 1.09, style=style)
    for index, (scene, caption) in enumerate(zip(scenes, captions, strict=True)):
        row, column = divmod(index, columns)
        left, bottom = (column + 0.025) / columns, 1 - (row + 0.975) / rows
        axes = figure.add_axes((left, bottom, 0.95 / columns, 0.95 / 1.09 / rows))
        draw_scene(scene, axes, radius_m=radius_m, title=False, legend=False, style=style)
        max_letters = int(11 * tile_in)
        axes.text(
            0.0, 1.015, shown_text(caption if len(caption) <= max_letters else f"{caption[: max_letters - 1]}…"),
            transform=axes.transAxes, fontsize=10, color=style.ink, fontweight="bold", ha="left", va="bottom",
            parse_math=False,
        )  # fmt: skip
    return save_figure(axes, path, dots_per_inch=dots_per_inch)


def prepare_path(path: str | Path, *, types: tuple[str, ...] = _PICTURE_TYPES) -> Path:
    """Checks that a picture of one of these types can be written to the path, and creates its folder."""
    path = Path(path)
    if path.suffix.lower() not in types:
        raise PlottingError(f"cannot draw to {path}: expected a file that ends in {', '.join(types)}")
    if path.is_dir():
        raise PlottingError(f"cannot draw to {path}: it is a folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def save_figure(axes: Axes, path: Path, *, dots_per_inch: int) -> Path:
    """Writes the figure that the axes belong to and returns the path."""
    figure = axes.get_figure(root=True)
    assert figure is not None  # noqa: S101 (axes always belong to a figure)
    write_figure(figure, path, dots_per_inch=dots_per_inch)
    return path


def write_figure(figure: Figure, path: Path, *, dots_per_inch: int) -> None:
    """Writes a figure in the format of the file's ending; a picture is whole or not there."""
    kind = path.suffix.lower().removeprefix(".")
    replace_file(path, lambda temporary: figure.savefig(temporary, dpi=dots_per_inch, format=kind))


def png_of(figure: Figure, *, dots_per_inch: int = 100) -> bytes:
    """A figure as the bytes of a PNG file."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=dots_per_inch)
    return buffer.getvalue()


def prepare_axes(axes: Axes, style: Style) -> None:
    """Sets a plain background without ticks, in a thin frame."""
    axes.set_facecolor(style.ground)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color("#d6d4ce")
        spine.set_linewidth(0.8)


def draw_scale_bar(axes: Axes, *, at_right: bool = False, style: Style = DEFAULT_STYLE) -> None:
    """Draws a bar of a round number of metres in the lower left (or right) corner, at most a quarter of the width."""
    left, bottom, right, top = shown_bounds_m(axes)
    span = right - left
    length = max((value for value in _SCALE_LENGTHS_M if value <= span / 4), default=_SCALE_LENGTHS_M[0])
    x = right - 0.035 * span - length if at_right else left + 0.035 * span
    y, height = bottom + 0.035 * (top - bottom), 0.007 * (top - bottom)
    pad = 0.018 * span
    axes.add_patch(
        Rectangle((x - pad, y - pad), length + 2 * pad, 0.042 * span + pad, facecolor=style.paper, alpha=0.85,
                  edgecolor="none", zorder=Layer.ANNOTATIONS)
    )  # fmt: skip
    for half, colour in ((0, style.ink), (1, "white")):
        axes.add_patch(
            Rectangle((x + half * length / 2, y), length / 2, height, facecolor=colour, edgecolor=style.ink,
                      linewidth=0.8, zorder=Layer.ANNOTATIONS)
        )  # fmt: skip
    axes.text(
        x + length / 2, y + 1.7 * height, f"{length} m", ha="center", va="bottom", fontsize=9, color=style.ink,
        zorder=Layer.ANNOTATIONS,
    )  # fmt: skip


def _draw_title(axes: Axes, scene: Scene, step: int, style: Style) -> None:
    """The id in bold; source, tags, number of observed road users and time below it."""
    time_s = (step - scene.current_step) * scene.dt_s
    num_observed = int(scene.tracks.valid[:, step].sum())
    facts = [scene.source, *scene.tags, f"{num_observed} road users", f"t = {time_s:+.1f} s" if time_s else "now"]
    # Offsets in points, as font sizes are: the lines never touch, however small the picture is.
    above: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "annotation_clip": False}
    above |= {"va": "bottom", "parse_math": False}
    axes.annotate(shown_text(scene.id), (0, 1), (0, 18), fontsize=13, fontweight="bold", color=style.ink, **above)
    axes.annotate(shown_text("  ·  ".join(facts)), (0, 1), (0, 5), fontsize=9, color=style.faint_ink, **above)


def shown_text(text: str) -> str:
    """Text from data as a picture shows it: one line, not too long.

    To be drawn with `parse_math=False`: matplotlib would take a scene id such as "$a" for mathematics.
    """
    line = "".join(letter if letter.isprintable() else " " for letter in text)
    return line if len(line) <= _MAX_LETTERS else f"{line[: _MAX_LETTERS - 1]}…"


def _draw_legend(axes: Axes, scene: Scene, step: int, style: Style) -> None:
    """A row below the picture that explains the colours of what the scene has."""
    tracks = scene.tracks
    types = set(tracks.types[tracks.valid[:, step]].tolist())
    past = Line2D([], [], color=style.tracks[TrackType.VEHICLE], linewidth=2.5, alpha=0.7)
    to_predict = Patch(facecolor="white", edgecolor=style.to_predict, linewidth=2)
    states = (SignalState.STOP, SignalState.CAUTION, SignalState.GO)
    entries: list[tuple[str, Any, bool]] = [  # label, handle, whether it is in the scene
        ("ego", Patch(facecolor=style.ego), tracks.ego_index is not None),
        *((kind.name.lower(), Patch(facecolor=style.tracks[kind]), int(kind) in types) for kind in TrackType),
        ("to predict", to_predict, len(tracks.to_predict) > 0),
        ("past", past, step > 0),
        ("future", Line2D([], [], color=style.future, linewidth=2.5), step < scene.num_steps - 1),
        ("route", Patch(facecolor=style.route, alpha=0.8), scene.route is not None),
        ("traffic light", tuple(Patch(facecolor=style.signals[state]) for state in states), len(scene.signals) > 0),
    ]
    draw_legend_row(
        axes, entries, corner=(-0.005, -0.008), style=style, fontsize=8.5, handlelength=1.3, handleheight=0.9,
        columnspacing=1.4, handletextpad=0.5, handler_map={tuple: HandlerTuple(ndivide=None, pad=0.25)},
    )  # fmt: skip


def draw_legend_row(
    axes: Axes, entries: Sequence[tuple[str, Any, bool]], *, corner: tuple[float, float], style: Style, **options: Any
) -> None:
    """Draws a legend in one row below the axes.

    Args:
        axes: The axes.
        entries: Label, handle, and whether the entry is shown.
        corner: Upper left corner of the row, in axes fractions.
        style: Colour of the labels.
        **options: Further arguments of `Axes.legend`.
    """
    shown = [(label, handle) for label, handle, is_shown in entries if is_shown]
    if shown:
        labels, handles = zip(*shown, strict=True)
        axes.legend(
            handles=handles, labels=labels, loc="upper left", bbox_to_anchor=corner, ncols=len(shown), frameon=False,
            labelcolor=style.ink, borderaxespad=0.0, **options,
        )  # fmt: skip
