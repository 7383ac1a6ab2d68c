"""Animations of driven scenes: GIF by pillow, MP4 where ffmpeg is installed."""

import shutil
from pathlib import Path

from matplotlib.animation import AbstractMovieWriter, FFMpegWriter, PillowWriter

from waycode.plotting.scene_picture import draw_scene, new_axes, prepare_path
from waycode.plotting.style import DEFAULT_STYLE, Style
from waycode.plotting.viewport import PlottingError
from waycode.scene import Scene

_VIDEO_TYPES = (".gif", ".mp4")


def save_animation(
    scene: Scene,
    path: str | Path,
    *,
    first_step: int = 0,
    every: int = 2,
    radius_m: float = 45.0,
    size_in: float = 5.0,
    dots_per_inch: int = 80,
    style: Style = DEFAULT_STYLE,
) -> Path:
    """Writes the steps of a scene as an animation in real time.

    Args:
        scene: The scene, with the ego in the centre of every frame.
        path: A .gif or .mp4 file; its folder is created.
        first_step: Time step of the first frame.
        every: Steps per frame.
        radius_m: Distance from the ego to each side.
        size_in: Width of a frame in inches.
        dots_per_inch: Resolution.
        style: Colours and widths.
    """
    path = prepare_path(path, types=_VIDEO_TYPES)
    if path.suffix.lower() == ".mp4" and shutil.which("ffmpeg") is None:
        raise PlottingError(f"cannot write {path}: MP4 needs ffmpeg, which is not installed; a .gif needs nothing")
    if not 0 <= first_step < scene.num_steps or every < 1:
        raise PlottingError(
            f"every is {every} and first_step is {first_step}, expected 1 or more and 0 to {scene.num_steps - 1}"
        )
    axes = new_axes(size_in=size_in, style=style)
    kind: type[AbstractMovieWriter] = PillowWriter if path.suffix.lower() == ".gif" else FFMpegWriter
    writer = kind(fps=max(1, round(1 / (scene.dt_s * every))))
    with writer.saving(axes.get_figure(root=True), str(path), dots_per_inch):  # type: ignore[arg-type]
        for step in range(first_step, scene.num_steps, every):
            axes.clear()
            draw_scene(scene, axes, radius_m=radius_m, step=step, trails=False, legend=False, style=style)
            writer.grab_frame(facecolor=axes.figure.get_facecolor())
    return path
