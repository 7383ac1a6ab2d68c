"""The demo: one bundled scene of each family, drawn, and a page that shows them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

import numpy as np

from waycode.plotting import save_contact_sheet, save_scene_picture
from waycode.scene import Scene
from waycode.scene.dataset import Dataset, DatasetError
from waycode.scene.kinematics import moving
from waycode.scene.manoeuvre import classify

PAGE = "index.html"
GALLERY = "gallery.png"
NEAR_M = 50.0


@dataclass(frozen=True, kw_only=True)
class DemoScene:
    """A scene of the demo and its picture."""

    family: str
    id: str
    picture: str  # file name, beside the page
    road_users: int
    moving: int
    signalled_lanes: int
    ego_manoeuvre: str
    duration_s: float


@dataclass(frozen=True, kw_only=True)
class DemoReport:
    """What the demo has made."""

    page: str
    scenes: tuple[DemoScene, ...]


def bundled_dataset() -> Dataset:
    """The sample of generated scenes that comes with the package."""
    folder = Path(str(files("waycode"))) / "samples" / "sumo"
    if not folder.is_dir():
        raise DatasetError(f"the bundled sample is not there: expected a dataset in {folder}; install waycode again")
    return Dataset(folder)


def run_demo(
    scenes: Mapping[str, Scene], out: str | Path, *, on_scene: Callable[[], None] = lambda: None
) -> DemoReport:
    """Draws each scene, named by its family, a sheet of all and the page; calls `on_scene` after each picture."""
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    shown = []
    for family, scene in scenes.items():
        entry = _describe(family, scene)
        save_scene_picture(scene, out / entry.picture)
        shown.append(entry)
        on_scene()
    save_gallery(scenes, out / GALLERY)
    report = DemoReport(page=str(out / PAGE), scenes=tuple(shown))
    (out / PAGE).write_text(page_of(report), encoding="utf-8")
    return report


def save_gallery(scenes: Mapping[str, Scene], path: str | Path) -> None:
    """Draws scenes side by side, under the names that they have here."""
    captions = [name.replace("_", " ") for name in scenes]
    save_contact_sheet(list(scenes.values()), path, captions=captions, columns=5, radius_m=NEAR_M, tile_in=3.2)


def one_per_family(dataset: Dataset) -> dict[str, Scene]:
    """The scene with the most moving road users of each family (a scene's first tag), by the family's name."""
    chosen: dict[str, Scene] = {}
    for scene in dataset:
        family = scene.tags[0] if scene.tags else scene.source
        if family not in chosen or _liveliness(scene) > _liveliness(chosen[family]):
            chosen[family] = scene
    return dict(sorted(chosen.items()))


def _liveliness(scene: Scene) -> int:
    """Number of moving road users that are near the ego now."""
    tracks, step = scene.tracks, scene.current_step
    position = tracks.position_m[:, step]
    centre = np.zeros(2) if tracks.ego_index is None else position[tracks.ego_index]
    near = np.linalg.norm(position - centre, axis=1) < NEAR_M
    return int((moving(tracks) & tracks.valid[:, step] & near).sum())


def _describe(family: str, scene: Scene) -> DemoScene:
    ego = scene.tracks.ego_index
    return DemoScene(
        family=family,
        id=scene.id,
        picture=f"{family}.png",
        road_users=int(scene.tracks.valid[:, scene.current_step].sum()),
        moving=int((moving(scene.tracks) & scene.tracks.valid[:, scene.current_step]).sum()),
        signalled_lanes=len(scene.signals),
        ego_manoeuvre="-" if ego is None else str(classify(scene)[ego]),
        duration_s=scene.num_steps * scene.dt_s,
    )


def page_of(report: DemoReport) -> str:
    """The page as HTML; it needs nothing but the pictures beside it."""
    cards = "\n".join(_card(entry) for entry in report.scenes)
    return _PAGE.substitute(cards=cards, count=len(report.scenes))


def _card(entry: DemoScene) -> str:
    facts = [f"{entry.road_users} road users", f"{entry.moving} moving", f"ego: {entry.ego_manoeuvre}"]
    if entry.signalled_lanes:
        facts.append(f"{entry.signalled_lanes} signalled lanes")
    return _CARD.substitute(
        picture=escape(entry.picture),
        family=escape(entry.family.replace("_", " ")),
        id=escape(entry.id),
        facts=escape(" · ".join(facts)),
    )


_CARD = Template("""\
<figure>
  <a href="$picture"><img src="$picture" alt="$family: $facts" loading="lazy"></a>
  <figcaption><h2>$family</h2><p>$facts</p><code>$id</code></figcaption>
</figure>""")

_PAGE = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Waycode demo</title>
<style>
  :root { --paper: #fbfaf8; --card: #ffffff; --ink: #2e3440; --faint: #6b7280; --line: #e3e0d9; --accent: #e8542f; }
  * { box-sizing: border-box; }
  body { margin: 0 auto; max-width: 1400px; padding: 3rem 1.5rem; background: var(--paper); color: var(--ink);
         font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
  header { max-width: 46rem; margin-bottom: 2.5rem; }
  h1 { margin: 0 0 .5rem; font-size: 2rem; letter-spacing: -.02em; }
  h1 span { color: var(--accent); }
  header p { margin: 0; color: var(--faint); }
  main { display: grid; gap: 1.5rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); }
  figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 12px; overflow: hidden; }
  figure:hover { box-shadow: 0 6px 24px rgb(46 52 64 / .10); }
  img { display: block; width: 100%; height: auto; }
  figcaption { padding: .9rem 1.1rem 1.1rem; border-top: 1px solid var(--line); }
  h2 { margin: 0; font-size: 1.05rem; }
  h2::first-letter { text-transform: uppercase; }
  figcaption p { margin: .15rem 0 .4rem; color: var(--faint); font-size: .92rem; }
  code { color: var(--faint); font-size: .78rem; overflow-wrap: anywhere; }
</style>
</head>
<body>
<header>
<h1>Way<span>code</span> demo</h1>
<p>$count generated scenes, one of each family of road networks. Boxes are road users now; what fades behind them is
their past, what runs ahead is their future. The ego is orange, and the road users to predict have a yellow ring.</p>
</header>
<main>
$cards
</main>
</body>
</html>
""")
