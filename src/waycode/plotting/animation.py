"""Animations of drives, one or several side by side, as GIF or MP4.

The map is drawn once into a bitmap by the layers of this room; frames are cut out of it, and what moves is drawn on top
with pillow. Drawing every frame with matplotlib took more than ten times as long (`benchmarks/video.py`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import shapely
from jaxtyping import Float
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image, ImageDraw, ImageFont

from waycode.dataset.files import replace_file
from waycode.plotting.map_layers import draw_map, draw_route, draw_signals
from waycode.plotting.scene_picture import new_figure, prepare_axes, prepare_path, shown_text
from waycode.plotting.shapes import Polyline
from waycode.plotting.style import DEFAULT_STYLE, Style
from waycode.plotting.track_layers import body_colour, body_shapes
from waycode.plotting.viewport import PlottingError, Viewport
from waycode.scene import Scene

_VIDEO_TYPES = (".gif", ".mp4")
_FINER = 2  # frames are drawn so much larger and scaled down: pillow does not smooth edges
_BAND_PX = 44  # for the text above a drive
_GAP_PX = 8  # between two drives
_BITMAP_DOTS_PER_INCH = 100
_PLAN_WIDTH_M, _CANDIDATE_WIDTH_M, _SEAM_M = 0.7, 0.25, 0.3


@dataclass(frozen=True, kw_only=True)
class ShownDrive:
    """A drive through a scene as an animation shows it. Positions are in the scene frame."""

    scene: Scene  # the driven scene; frames show the ego in the centre
    name: str = ""  # of the driver, written above
    first_step: int = 0  # of the scene, at which the drive begins
    plans_m: Sequence[Polyline] = ()  # the driver's plan at each step from `first_step` on; may be shorter
    candidates_m: Sequence[Sequence[Polyline]] = ()  # what it chose among at each step
    scores: Float[np.ndarray, " S"] | None = None  # score so far at each step from `first_step` on, in [0, 1]

    def __post_init__(self) -> None:
        if self.scene.tracks.ego_index is None:
            raise PlottingError(f"scene {self.scene.id} has no ego, expected a scene that was driven")
        if not 0 <= self.first_step < self.scene.num_steps:
            raise PlottingError(f"first_step is {self.first_step}, expected 0 to {self.scene.num_steps - 1}")


def save_animation(
    drives: Sequence[ShownDrive],
    path: str | Path,
    *,
    every: int = 2,
    radius_m: float = 45.0,
    side_px: int = 400,
    style: Style = DEFAULT_STYLE,
) -> Path:
    """Writes drives side by side as an animation in real time.

    Args:
        drives: at least one; a drive that ends earlier than another stays at its last step.
        path: a .gif or .mp4 file; its folder is created. MP4 needs the extra `video`.
        every: steps per frame.
        radius_m: distance from the ego to each side.
        side_px: side of the square that shows a drive, in pixels.
        style: colours and widths.
    """
    path = prepare_path(path, types=_VIDEO_TYPES)
    if not drives or every < 1 or side_px < 16:
        raise PlottingError(
            f"got {len(drives)} drives, every {every}, side_px {side_px}; expected 1, 1 and 16 at least"
        )
    is_mp4 = path.suffix.lower() == ".mp4"
    if is_mp4:
        check_can_write_mp4()
    canvases = [_Canvas(drive, radius_m=radius_m, side_px=side_px, style=style) for drive in drives]
    num_steps = max(drive.scene.num_steps - drive.first_step for drive in drives)
    frames = (_side_by_side([canvas.frame(step) for canvas in canvases], style) for step in range(0, num_steps, every))
    frames_per_s = max(1, round(1 / (drives[0].scene.dt_s * every)))
    write = _write_mp4 if is_mp4 else _write_gif
    replace_file(path, lambda temporary: write(frames, temporary, frames_per_s))
    return path


class _Canvas:
    """Draws the frames of one drive."""

    def __init__(self, drive: ShownDrive, *, radius_m: float, side_px: int, style: Style):
        self.drive, self.style, self.side_px = drive, style, side_px
        self.pixels_per_m = _FINER * side_px / (2 * radius_m)
        tracks, scene = drive.scene.tracks, drive.scene
        ego = tracks.ego_index
        seen = tracks.valid[ego, drive.first_step :]
        self.ego_m = tracks.position_m[ego, drive.first_step :].astype(np.float64)
        for step in np.flatnonzero(~seen).tolist():  # hold the last position where the ego was not observed
            self.ego_m[step] = self.ego_m[max(step - 1, 0)]
        low, high = self.ego_m.min(axis=0) - radius_m - 1, self.ego_m.max(axis=0) + radius_m + 1
        (self.left_m, self.top_m), (width_m, height_m) = (low[0], high[1]), high - low
        viewport = Viewport(centre_m=tuple((low + high) / 2), width_m=width_m, height_m=height_m)
        self._figure = new_figure(
            *(np.array([width_m, height_m]) * self.pixels_per_m / _BITMAP_DOTS_PER_INCH), style=style
        )
        self._figure.set_dpi(_BITMAP_DOTS_PER_INCH)
        self._axes = self._figure.add_axes((0, 0, 1, 1))
        prepare_axes(self._axes, style)
        viewport.apply(self._axes)
        draw_map(self._axes, scene, style=style)
        draw_route(self._axes, scene, style=style)
        self._lights: Any = None  # states of the traffic lights in `_bitmap`
        self._bitmap: Image.Image

    def frame(self, step: int) -> Image.Image:
        """The frame at a step after the first of the drive, with the text above it."""
        step = min(step, self.drive.scene.num_steps - 1 - self.drive.first_step)
        square = self._background(step)
        pen, side = ImageDraw.Draw(square), square.width
        corner = (self._pixels(self.ego_m[step][None])[0] - side / 2).round()
        self._draw_road_users(pen, step, corner)
        if step < len(self.drive.candidates_m):
            for path_m in self.drive.candidates_m[step]:
                self._draw_line(pen, path_m, corner, colour=self.style.candidate, width_m=_CANDIDATE_WIDTH_M)
        if step < len(self.drive.plans_m):
            for colour, width_m in (("white", _PLAN_WIDTH_M + _SEAM_M), (self.style.chosen, _PLAN_WIDTH_M)):
                self._draw_line(pen, self.drive.plans_m[step], corner, colour=colour, width_m=width_m)
        ego = self.drive.scene.tracks.ego_index
        assert ego is not None  # noqa: S101 (a drive has an ego)
        self._draw_body(pen, ego, step, corner)
        shown = Image.new("RGB", (self.side_px, self.side_px + _BAND_PX), self.style.paper)
        shown.paste(square.reduce(_FINER), (0, _BAND_PX))
        self._write_text(ImageDraw.Draw(shown), step)
        return shown

    def _background(self, step: int) -> Image.Image:
        """The map around the ego; drawn again only when a traffic light changes."""
        signals, at = self.drive.scene.signals, self.drive.first_step + step
        lights = (signals.states[:, at].tobytes(), signals.valid[:, at].tobytes()) if len(signals) else ()
        if lights != self._lights:
            before = {*self._axes.collections, *self._axes.patches}
            draw_signals(self._axes, self.drive.scene, step=at, style=self.style)
            canvas: Any = FigureCanvasAgg(self._figure)
            canvas.draw()
            self._bitmap = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
            self._lights = lights
            for artist in {*self._axes.collections, *self._axes.patches} - before:
                artist.remove()
        side = _FINER * self.side_px
        left, top = (self._pixels(self.ego_m[step][None])[0] - side / 2).round().astype(int).tolist()
        return self._bitmap.crop((left, top, left + side, top + side))

    def _pixels(self, points_m: Polyline) -> Float[np.ndarray, "n 2"]:
        """Pixels of the bitmap, from its upper left corner."""
        points = np.asarray(points_m, np.float64)
        return self.pixels_per_m * np.stack([points[:, 0] - self.left_m, self.top_m - points[:, 1]], axis=-1)

    def _draw_line(self, pen: Any, path_m: Polyline, corner: Any, *, colour: str, width_m: float) -> None:
        points = self._pixels(path_m) - corner
        width = max(2, round(width_m * self.pixels_per_m))
        pen.line([tuple(point) for point in points.tolist()], fill=colour, width=width, joint="curve")

    def _draw_road_users(self, pen: Any, step: int, corner: Any) -> None:
        tracks, at = self.drive.scene.tracks, self.drive.first_step + step
        reach_m = 0.75 * self.side_px * _FINER / self.pixels_per_m  # half of the diagonal, and a bus
        near = np.linalg.norm(tracks.position_m[:, at] - self.ego_m[step], axis=-1) < reach_m
        for track in np.flatnonzero(tracks.valid[:, at] & near):
            if track != tracks.ego_index:
                self._draw_body(pen, int(track), step, corner)

    def _draw_body(self, pen: Any, track: int, step: int, corner: Any) -> None:
        shape, glass = body_shapes(self.drive.scene, track, self.drive.first_step + step)
        colour = body_colour(self.drive.scene, track, self.style)
        for geometry, filled in ((shape.buffer(0.15), "white"), (shape, colour), (glass, "#3a4450")):
            for polygon in shapely.get_parts(geometry):
                outline = self._pixels(np.asarray(polygon.exterior.coords)) - corner
                pen.polygon([tuple(point) for point in outline.tolist()], fill=filled)

    def _write_text(self, pen: Any, step: int) -> None:
        """The driver's name; time, speed and score so far."""
        drive, tracks, at = self.drive, self.drive.scene.tracks, self.drive.first_step + step
        facts = [f"{step * drive.scene.dt_s:4.1f} s", f"{float(tracks.speed_mps[tracks.ego_index, at]):4.1f} m/s"]
        if drive.scores is not None and len(drive.scores):
            facts.append(f"score so far {100 * drive.scores[min(step, len(drive.scores) - 1)]:.0f}")
        pen.text((8, 4), shown_text(drive.name), font=_font(15, bold=True), fill=self.style.ink)
        pen.text((8, 24), "   ".join(facts), font=_font(13), fill=self.style.ink)
        legend = [("plan", self.style.chosen, drive.plans_m), ("candidates", self.style.candidate, drive.candidates_m)]
        right = self.side_px - 8
        for label, colour, is_there in legend:
            if any(len(one) for one in is_there):
                right -= round(pen.textlength(label, font=_font(12))) + 26
                pen.line([(right, 14), (right + 16, 14)], fill=colour, width=3)
                pen.text((right + 20, 6), label, font=_font(12), fill=self.style.faint_ink)


@lru_cache
def _font(size: int, *, bold: bool = False) -> Any:
    """The font of all other pictures, which matplotlib brings along."""
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(mpl.get_data_path()) / "fonts" / "ttf" / name), size)


def _side_by_side(frames: Sequence[Image.Image], style: Style) -> Image.Image:
    if len(frames) == 1:
        return frames[0]
    width = sum(frame.width for frame in frames) + _GAP_PX * (len(frames) - 1)
    both = Image.new("RGB", (width, frames[0].height), style.paper)
    left = 0
    for frame in frames:
        both.paste(frame, (left, 0))
        left += frame.width + _GAP_PX
    return both


def _write_gif(frames: Iterator[Image.Image], path: Path, frames_per_s: int) -> None:
    """All frames have the palette of the first, which has every colour of the style but those of rare lights."""
    first = next(frames)
    palette = first.quantize(256, dither=Image.Dither.NONE)
    rest = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    palette.save(path, format="GIF", save_all=True, append_images=rest, duration=round(1000 / frames_per_s), loop=0)


def check_can_write_mp4() -> None:
    """Raises `PlottingError` if the package that writes MP4 is not installed."""
    try:
        import imageio_ffmpeg  # noqa: F401 (its presence is asked for)
    except ImportError as error:
        raise PlottingError(
            "MP4 needs ffmpeg, which is not installed: expected `pip install 'waycode[video]'`; a GIF needs nothing"
        ) from error


def _write_mp4(frames: Iterator[Image.Image], path: Path, frames_per_s: int) -> None:
    """Writes by the ffmpeg of imageio-ffmpeg, whose package includes the program."""
    from imageio_ffmpeg import write_frames

    first = next(frames)
    size = (first.width - first.width % 2, first.height - first.height % 2)  # the codec wants even sizes
    writer = write_frames(str(path), size, fps=frames_per_s, macro_block_size=2, quality=7, output_params=["-f", "mp4"])
    writer.send(None)
    for frame in (first, *frames):
        writer.send(frame.crop((0, 0, *size)).tobytes())
    writer.close()
