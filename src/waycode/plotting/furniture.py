"""What stands around a picture: title, scale bar and legend."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from waycode.plotting.style import Layer, Style
from waycode.plotting.viewport import shown_bounds_m
from waycode.scene import Scene, SignalState, TrackType

Entry = tuple[str, Any]  # label and handle of the legend
_SCALE_LENGTHS_M = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


def draw_title(axes: Axes, scene: Scene, *, step: int | None = None, style: Style | None = None) -> None:
    """Id in bold; source, tags, counts and time below it."""
    style = style or Style()
    step = scene.current_step if step is None else step
    time_s = (step - scene.current_step) * scene.dt_s
    seen = int(scene.tracks.valid[:, step].sum())
    facts = [scene.source, *scene.tags, f"{seen} road users", f"t = {time_s:+.1f} s" if time_s else "now"]
    # In points above the axes, as letters are measured: they never touch, however small the picture is.
    above: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "annotation_clip": False}
    axes.annotate(scene.id, (0, 1), (0, 18), fontsize=13, fontweight="bold", color=style.ink, va="bottom", **above)
    axes.annotate("  ·  ".join(facts), (0, 1), (0, 5), fontsize=9, color=style.faint_ink, va="bottom", **above)


def draw_scale_bar(axes: Axes, *, at_right: bool = False, style: Style | None = None) -> None:
    """A bar of a round number of metres, at most a quarter of the picture, in its lower left (or right) corner."""
    style = style or Style()
    left, bottom, right, top = shown_bounds_m(axes)
    span = right - left
    length = max((value for value in _SCALE_LENGTHS_M if value <= span / 4), default=_SCALE_LENGTHS_M[0])
    x = right - 0.035 * span - length if at_right else left + 0.035 * span
    y, height = bottom + 0.035 * (top - bottom), 0.007 * (top - bottom)
    pad = 0.018 * span
    axes.add_patch(
        Rectangle((x - pad, y - pad), length + 2 * pad, 0.042 * span + pad, facecolor=style.paper, alpha=0.85,
                  edgecolor="none", zorder=Layer.FURNITURE)
    )  # fmt: skip
    for half, colour in ((0, style.ink), (1, "white")):
        axes.add_patch(
            Rectangle((x + half * length / 2, y), length / 2, height, facecolor=colour, edgecolor=style.ink,
                      linewidth=0.8, zorder=Layer.FURNITURE)
        )  # fmt: skip
    axes.text(
        x + length / 2, y + 1.7 * height, f"{length} m", ha="center", va="bottom", fontsize=9, color=style.ink,
        zorder=Layer.FURNITURE,
    )  # fmt: skip


def draw_legend(axes: Axes, scene: Scene, *, step: int | None = None, style: Style | None = None) -> None:
    """What the colours mean, in a row under the picture; only of what the scene has."""
    style = style or Style()
    step = scene.current_step if step is None else step
    entries = [*_body_entries(scene, step, style), *_way_entries(scene, step, style), *_light_entries(scene, style)]
    if not entries:
        return
    axes.legend(
        handles=[handle for _, handle in entries], labels=[name for name, _ in entries], loc="upper left",
        bbox_to_anchor=(-0.005, -0.008), ncols=len(entries), frameon=False, fontsize=8.5, labelcolor=style.ink,
        handlelength=1.3, handleheight=0.9, columnspacing=1.4, handletextpad=0.5, borderaxespad=0.0,
        handler_map={tuple: HandlerTuple(ndivide=None, pad=0.25)},
    )  # fmt: skip


def _body_entries(scene: Scene, step: int, style: Style) -> list[Entry]:
    tracks = scene.tracks
    entries: list[Entry] = [("ego", Patch(facecolor=style.ego))] if tracks.ego_index is not None else []
    seen = set(tracks.types[tracks.valid[:, step]].tolist())
    entries += [(kind.name.lower(), Patch(facecolor=style.tracks[kind])) for kind in TrackType if int(kind) in seen]
    if len(tracks.to_predict):
        entries.append(("to predict", Patch(facecolor="white", edgecolor=style.to_predict, linewidth=2)))
    return entries


def _way_entries(scene: Scene, step: int, style: Style) -> list[Entry]:
    entries: list[Entry] = []
    if step > 0:
        entries.append(("past", Line2D([], [], color=style.tracks[TrackType.VEHICLE], linewidth=2.5, alpha=0.7)))
    if step < scene.num_steps - 1:
        entries.append(("future", Line2D([], [], color=style.future, linewidth=2.5)))
    if scene.route is not None:
        entries.append(("route", Patch(facecolor=style.route, alpha=0.8)))
    return entries


def _light_entries(scene: Scene, style: Style) -> list[Entry]:
    if len(scene.signals) == 0:
        return []
    states = (SignalState.STOP, SignalState.CAUTION, SignalState.GO)
    return [("traffic light", tuple(Patch(facecolor=style.signals[state]) for state in states))]
