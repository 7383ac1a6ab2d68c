"""Calibration of the gate for scenes: how often it notices scenes of another kind, and maps that are broken.

Known scenes are those of training; thresholds come from held-out scenes of the same kind, of which 5 % are taken for
unknown ones. Detection is measured on broken maps of the held-out scenes and on datasets of another kind.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from waycode.dataset.dataset import Dataset
from waycode.planner import Planner, PlannerError, View, recorded_agents
from waycode.planner.familiarity import Familiarity, SceneMeasures, measure_scene
from waycode.scene import MapFeatures, Polylines, Scene, Signals
from waycode.scene.frames import rotate

_AGENTS_PER_SCENE = 2  # each sees another part of its scene
_NUM_BROKEN = 40  # scenes whose maps are broken in each way
_SHIFT_M, _TURN_RAD, _SCALE, _NOISE_M = 10.0, np.radians(30), 1.6, 1.0  # of broken maps

Breaking = Callable[[np.ndarray, np.random.Generator], np.ndarray]  # of the points [P, 2] of a polyline
BROKEN_MAPS: Mapping[str, Breaking] = {
    "map shifted by 10 m": lambda points, random: points + np.array([_SHIFT_M, -_SHIFT_M / 2]),
    "map turned by 30 degrees": lambda points, random: rotate(points, _TURN_RAD),
    "map scaled by 1.6": lambda points, random: _SCALE * points,
    "points moved by 1 m at random": lambda points, random: points + random.normal(0, _NOISE_M, points.shape),
}


@dataclass(frozen=True, kw_only=True)
class Detection:
    """How many agents' views of some scenes were taken for those of an unknown kind."""

    scenes: str  # what they are
    num_views: int
    num_noticed: int

    @property
    def share(self) -> float:
        return self.num_noticed / max(1, self.num_views)


def measure_scenes(
    planner: Planner, scenes: Iterable[Scene], *, on_scene: Callable[[], None] = lambda: None
) -> list[SceneMeasures]:
    """The measures of up to two agents of each scene; a joint model encodes them together."""
    measures = []
    for scene in scenes:
        agents = recorded_agents(scene)[:_AGENTS_PER_SCENE]
        if planner.model.config.joint:
            views: list[View] = [planner.encode(scene, agents=agents)] if agents else []
        else:
            views = [planner.encode(scene, agent) for agent in agents]
        measures += [measure_scene(view.embedding, view.setting) for view in views]
        on_scene()
    return measures


def calibrate(
    planner: Planner,
    known: Dataset,
    held_out: Dataset,
    others: Sequence[Dataset] = (),
    *,
    scenes: int | None = None,
    on_scene: Callable[[], None] = lambda: None,
) -> tuple[Familiarity, list[Detection]]:
    """The familiarity of a planner's model, and what it notices.

    Half of the held-out scenes give the thresholds, the other half the share of false alarms and the broken maps.

    Args:
        planner: with the model.
        known: scenes that the model was trained on.
        held_out: scenes of the same kind that it was not trained on.
        others: scenes of other kinds.
        scenes: number of scenes to draw from each dataset; None: all.
        on_scene: called after each scene that was measured.
    """
    random = np.random.default_rng(0)
    # Drawn, not evenly spread: generated datasets repeat their kinds of roads with a period.
    chosen = [_drawn(data, scenes, random) for data in (known, held_out, *others)]
    if len(chosen[1]) < 2:
        raise PlannerError(f"{held_out.folder} has {len(chosen[1])} scenes to calibrate with, expected at least 2")
    fresh = chosen[1][1::2]

    def measured(part: Iterable[Scene]) -> list[SceneMeasures]:
        return measure_scenes(planner, part, on_scene=on_scene)

    familiarity = Familiarity.fit(measured(chosen[0]), measured(chosen[1][::2]))
    named = {"held out, of the known kind: false alarms": fresh}
    named |= {
        name: [broken(scene, change, random) for scene in fresh[:_NUM_BROKEN]] for name, change in BROKEN_MAPS.items()
    }
    named["without a map"] = [
        replace(scene, map=MapFeatures(), signals=Signals(), route=None) for scene in fresh[:_NUM_BROKEN]
    ]
    named |= {str(data.folder): part for data, part in zip(others, chosen[2:], strict=True)}
    detections = []
    for name, part in named.items():
        doubts = [familiarity.doubt(one) for one in measured(part)]
        noticed = sum(doubt is not None for doubt in doubts)
        detections.append(Detection(scenes=name, num_views=len(doubts), num_noticed=noticed))
    return familiarity, detections


def _drawn(data: Dataset, count: int | None, random: np.random.Generator) -> list[Scene]:
    """`count` scenes of a dataset in random order; all if None."""
    return [data[int(index)] for index in random.permutation(len(data))[:count]]


def broken(scene: Scene, change: Breaking, random: np.random.Generator) -> Scene:
    """The scene with the lanes, lines and edges of its map changed; its road users stay where they are."""

    def changed(lines: Polylines) -> Polylines:
        points = [change(line.astype(np.float64), random) for line in lines.as_list()]
        return Polylines.of(points) if points else lines

    features = scene.map
    lanes = replace(features.lanes, centrelines=changed(features.lanes.centrelines))
    lines, edges = changed(features.road_lines), changed(features.road_edges)
    return replace(scene, map=replace(features, lanes=lanes, road_lines=lines, road_edges=edges))
