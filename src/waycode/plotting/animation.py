"""A driven scene as a moving picture: GIF by pillow, MP4 where ffmpeg is installed."""

import shutil
from pathlib import Path

from matplotlib.animation import AbstractMovieWriter, FFMpegWriter, PillowWriter

from waycode.plotting.scene_picture import draw_scene, new_axes
from waycode.plotting.style import Style
from waycode.plotting.viewport import PlottingError
from waycode.scene import Scene

VIDEO_TYPES = (".gif", ".mp4")


def save_animation(
    scene: Scene,
    path: str | Path,
    *,
    first_step: int = 0,
    every: int = 2,
    radius_m: float = 45.0,
    size_in: float = 5.0,
    dots_per_inch: int = 80,
    style: Style | None = None,
) -> Path:
    """Writes the steps of a scene from `first_step` on, each `every`-th, at the speed at which they happened."""
    path = _checked(Path(path))
    if not 0 <= first_step < scene.num_steps or every < 1:
        raise PlottingError(
            f"asked for every {every}. step from {first_step} on, expected 1 or more and 0 to {scene.num_steps - 1}"
        )
    axes = new_axes(size_in=size_in, style=style)
    figure = axes.figure
    frames_per_second = max(1, round(1 / (scene.dt_s * every)))
    kind: type[AbstractMovieWriter] = PillowWriter if path.suffix.lower() == ".gif" else FFMpegWriter
    writer = kind(fps=frames_per_second)
    with writer.saving(axes.get_figure(root=True), str(path), dots_per_inch):  # type: ignore[arg-type]
        for step in range(first_step, scene.num_steps, every):
            axes.clear()
            draw_scene(scene, axes, radius_m=radius_m, step=step, trails=False, legend=False, style=style)
            writer.grab_frame(facecolor=figure.get_facecolor())
    return path


def _checked(path: Path) -> Path:
    """The path, if a moving picture can be written to it; its folder is made if need be."""
    if path.suffix.lower() not in VIDEO_TYPES:
        raise PlottingError(f"cannot write a video to {path}: expected a file that ends in {', '.join(VIDEO_TYPES)}")
    if path.suffix.lower() == ".mp4" and shutil.which("ffmpeg") is None:
        raise PlottingError(f"cannot write {path}: MP4 needs ffmpeg, which is not installed; a .gif needs nothing")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
