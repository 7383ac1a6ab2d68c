"""Plans for the cases of every section, counts successes, and writes the pictures and the page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from waycode.dataset.dataset import Dataset, DatasetError
from waycode.dataset.files import replace_file
from waycode.dataset.samples import bundled_folder
from waycode.demo.page import GENERATOR, DemoReport, SectionReport, page_of
from waycode.demo.sections import SECTIONS, Section
from waycode.evaluation.guidance import SUCCESS, TASKS
from waycode.evaluation.motion import MeasuredMotion
from waycode.evaluation.selection import HORIZON_STEPS, Case, turned_left_cases
from waycode.objectives import Reconstruction
from waycode.planner import Plan, Planner, PlanStatus, View
from waycode.planner.search_panels import search_panels
from waycode.plotting import ComparisonPanel, save_comparison_picture, save_contact_sheet, save_plan_picture
from waycode.scene import Scene
from waycode.scene.frames import wrap_angle
from waycode.scene.kinematics import moving

NUM_PICTURES = len(SECTIONS) + 1  # and the sheet of scenes
_PAGE, _SCENES_PICTURE = "index.html", "gallery.png"
_Encode = Callable[[Scene, int], View]  # from a scene and the index of a track
_NEAR_M = 50.0  # radius of the pictures of scenes
_SWAP_LETTERS = "BCD"  # the scenes beside A in the picture of the token swap


@dataclass(frozen=True)
class _DemoScene:
    dataset: Dataset
    index: int  # in the dataset
    scene: Scene


@dataclass(frozen=True)
class _PlannedCase:
    """A case with its plan and the measures of the plan."""

    source: _DemoScene
    case: Case
    view: View
    plan: Plan
    measures: Mapping[str, float]

    @property
    def success(self) -> bool:
        return bool(self.measures[SUCCESS])

    @property
    def recorded_m(self) -> Float[np.ndarray, "T 2"]:
        after = self.source.scene.current_step + 1
        positions = self.source.scene.tracks.position_m[self.case.agent, after : after + HORIZON_STEPS]
        return positions.astype(np.float64)

    @property
    def recorded_turn_rad(self) -> float:
        now = self.source.scene.current_step
        heading = self.source.scene.tracks.heading_rad[self.case.agent, [now, now + HORIZON_STEPS]]
        return abs(float(wrap_angle(np.diff(heading))[0]))


def bundled_dataset(name: str = "sumo") -> Dataset:
    """Generated scenes that come with the package: "sumo", or "sumo-crossings" with cases of the left-turn table."""
    folder = bundled_folder(name)
    if not folder.is_dir():
        raise DatasetError(f"the bundled sample is not there: expected a dataset in {folder}; install waycode again")
    return Dataset(folder)


def run_demo(
    datasets: Sequence[Dataset],
    out: str | Path,
    *,
    model: str = "sumo-small",
    on_picture: Callable[[], None] = lambda: None,
) -> DemoReport:
    """Writes the page with a picture per section and a sheet of the scenes.

    Args:
        datasets: scenes to select cases from; the sheet shows those of the first.
        out: folder for the page and its pictures.
        model: what `--model` takes.
        on_picture: called after each picture.
    """
    out = Path(out)
    _check_folder(out)
    out.mkdir(parents=True, exist_ok=True)
    planner = Planner.from_pretrained(model)
    scenes = [_DemoScene(dataset, index, scene) for dataset in datasets for index, scene in enumerate(dataset)]
    views: dict[tuple[str, int], View] = {}

    def encode(scene: Scene, agent: int) -> View:
        """Encodes each agent once for all sections."""
        if (scene.id, agent) not in views:
            views[scene.id, agent] = planner.encode(scene, agent)
        return views[scene.id, agent]

    reports, missing = [], []
    for section in SECTIONS:
        report = _run_section(section, scenes, encode, folder=out)
        if report is None:
            missing.append(section.title)
        else:
            reports.append(report)
        on_picture()
    families = one_per_family(datasets[0])
    captions = [name.replace("_", " ") for name in families]
    save_contact_sheet(
        list(families.values()), out / _SCENES_PICTURE, captions=captions, columns=5, radius_m=_NEAR_M, tile_in=3.2
    )
    on_picture()
    demo = DemoReport(
        page=str(out / _PAGE),
        model=model,
        sections=tuple(reports),
        missing=tuple(missing),
        gallery=_SCENES_PICTURE,
        families=tuple(families),
    )
    replace_file(out / _PAGE, lambda path: path.write_text(page_of(demo), encoding="utf-8"))
    return demo


def _check_folder(out: Path) -> None:
    """Refuses a folder with files that the demo did not make: its page and pictures would replace them."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    page = out / _PAGE
    if not page.is_file() or GENERATOR not in page.read_text(encoding="utf-8", errors="replace"):
        raise DatasetError(f"{out} has files that the demo did not make, expected a new folder, or that of a demo")


def one_per_family(dataset: Dataset) -> dict[str, Scene]:
    """The scene with the most moving road users near the ego, by family of road networks (the scene's first tag)."""

    def num_moving(scene: Scene) -> int:
        tracks, step = scene.tracks, scene.current_step
        position = tracks.position_m[:, step]
        centre = np.zeros(2) if tracks.ego_index is None else position[tracks.ego_index]
        near = np.linalg.norm(position - centre, axis=1) < _NEAR_M
        return int((moving(tracks) & tracks.valid[:, step] & near).sum())

    chosen: dict[str, Scene] = {}
    for scene in dataset:
        family = scene.tags[0] if scene.tags else scene.source
        if family not in chosen or num_moving(scene) > num_moving(chosen[family]):
            chosen[family] = scene
    return dict(sorted(chosen.items()))


def _run_section(
    section: Section, scenes: Sequence[_DemoScene], encode: _Encode, *, folder: Path
) -> SectionReport | None:
    """Plans, counts and draws; None if the scenes have no case for the section."""
    task = TASKS[section.task]
    origin = _recorded_left_turn(scenes, encode) if section.swaps_tokens else None
    if section.swaps_tokens and origin is None:
        return None
    planned = []
    for source in scenes:
        for case in task.select(source.scene):
            if case.group in (*section.groups, *section.beside):
                view = encode(source.scene, case.agent)
                if origin is None:
                    plan = view.plan(task.objective_of(source.scene, case))
                else:
                    plan = view.decode(origin.plan.tokens or ())
                planned.append(_measured_case(section.task, source, case, view, plan))
    counted = sorted((one for one in planned if one.case.group in section.groups), key=lambda one: _rank(section, one))
    if not counted:
        return None
    if origin is None:
        _draw_search(section, counted[0], folder / section.picture)
    else:
        _draw_swap(origin, counted, folder / section.picture)
    return _report(section, counted, planned)


def _recorded_left_turn(scenes: Sequence[_DemoScene], encode: _Encode) -> _PlannedCase | None:
    """The recorded left turn that search reconstructs best (search reconstructs better than the encoder)."""
    turns = []
    for source in scenes:
        for case in turned_left_cases(source.scene):
            view = encode(source.scene, case.agent)
            turns.append(_measured_case("left-turn", source, case, view, view.plan(Reconstruction())))
    return min(turns, key=lambda turn: turn.plan.levels, default=None)


def _measured_case(task: str, source: _DemoScene, case: Case, view: View, plan: Plan) -> _PlannedCase:
    motion = MeasuredMotion.of(source.scene, case.agent, plan.position_in(source.scene))
    return _PlannedCase(source, case, view, plan, TASKS[task].measure(motion, source.scene, case))


def _rank(section: Section, planned: _PlannedCase) -> tuple[bool, bool, tuple[float, ...]]:
    """Sort key of the case to draw: success first, then a plan that passes the gate, then turn angle or cost."""
    plan = planned.plan
    last = (-planned.recorded_turn_rad,) if section.show_turning else plan.levels or (plan.final_std_m,)
    return not planned.success, plan.status is not PlanStatus.FOUND, last


def _draw_search(section: Section, shown: _PlannedCase, path: Path) -> None:
    goal_x, goal_y = shown.recorded_m[-1].tolist()
    save_plan_picture(
        shown.source.scene,
        path,
        agent=shown.case.agent,
        search=search_panels(shown.view, shown.plan),
        planned_m=shown.plan.position_in(shown.source.scene),
        recorded_m=shown.recorded_m,
        goal_m=(goal_x, goal_y) if section.show_goal else None,
        route=section.show_route,
        speeds=section.show_speeds,
        note=shown.plan.summary,
    )


def _draw_swap(origin: _PlannedCase, swapped: Sequence[_PlannedCase], path: Path) -> None:
    panels = [("A: tokens of this recording", origin)]
    panels += [(f"{letter}: same tokens", one) for letter, one in zip(_SWAP_LETTERS, swapped, strict=False)]
    tokens = " ".join(map(str, origin.plan.tokens or ()))
    outcomes = [
        ComparisonPanel(
            scene=one.source.scene,
            agent=one.case.agent,
            planned_m=one.plan.position_in(one.source.scene),
            recorded_m=one.recorded_m,
            caption=caption,
            detail=f"original: {'left turn' if one is origin else 'straight'}; tokens {tokens}",
        )
        for caption, one in panels
    ]
    save_comparison_picture(outcomes, path, note=swapped[0].plan.summary)


def _report(section: Section, counted: Sequence[_PlannedCase], planned: Sequence[_PlannedCase]) -> SectionReport:
    shown, plan = counted[0], counted[0].plan
    objective = TASKS[section.task].objective_of(shown.source.scene, shown.case)
    by_group = {
        str(group): [one.success for one in planned if one.case.group is group]
        for group in (*section.groups, *section.beside)
    }
    return SectionReport(
        name=section.name,
        title=section.title,
        asked=section.asked,
        look=section.look,
        criterion=section.criterion,
        found=f"It {section.measured.format(**shown.measures)}.",
        objective="" if section.swaps_tokens else str(objective),
        picture=section.picture,
        data=str(shown.source.dataset.folder),
        scene_id=shown.source.scene.id,
        scene_index=shown.source.index,
        agent_id=shown.source.scene.tracks.ids[shown.case.agent],
        tokens=plan.tokens or (),
        status=str(plan.status),
        costs=dict(plan.costs),
        success=shown.success,
        num_success=sum(one.success for one in counted),
        num_cases=len(counted),
        counts={group: (sum(successes), len(successes)) for group, successes in by_group.items()},
        counted_as=section.counted_as,
        plan_ms=1e3 * plan.timings_s["decode" if section.swaps_tokens else "search"],
    )
