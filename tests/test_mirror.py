"""The mirror: what is made of a mirrored scene is the mirror image of what is made of the scene."""

from dataclasses import replace

import numpy as np
import pytest

from scenes import bare_scene, small_scene
from tiny_model import FEATURES, assert_same_example, crowd, in_a_mirror, observed, sample_scenes
from waycode import Scene
from waycode.features import extract, mirror
from waycode.scene import MapFeatures, Signals, StopSigns

SCENES = [*sample_scenes(), crowd(), small_scene(), bare_scene()]


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.id)
def test_mirroring_tensors_is_mirroring_the_scene(scene: Scene) -> None:
    agents = observed(scene, 4)
    mirrored = extract(in_a_mirror(scene), agents, config=FEATURES)
    assert_same_example(mirror(extract(scene, agents, config=FEATURES)), mirrored)


def test_a_stop_sign_without_a_lane_is_mirrored_too() -> None:
    scene = replace(crowd(), signals=Signals())
    signs = StopSigns(position_m=np.array([[5, 3], [-20, 14]], np.float32))
    for features in (replace(scene.map, stop_signs=signs), MapFeatures(stop_signs=signs)):
        scene = replace(scene, map=features)
        mirrored = extract(in_a_mirror(scene), observed(scene, 2), config=FEATURES)
        assert_same_example(mirror(extract(scene, observed(scene, 2), config=FEATURES)), mirrored)


@pytest.mark.parametrize("scene", [crowd(), small_scene()], ids=lambda scene: scene.id)
def test_mirroring_twice_changes_nothing(scene: Scene) -> None:
    example = extract(scene, observed(scene, 2), config=FEATURES)
    assert_same_example(mirror(mirror(example)), example, tolerance_m=0.0)


def test_a_left_turn_becomes_a_right_turn() -> None:
    scene = crowd()
    example = extract(scene, observed(scene, 4), config=FEATURES)
    turned = mirror(example)
    np.testing.assert_array_equal(turned.future_m[..., 0], example.future_m[..., 0])
    np.testing.assert_array_equal(turned.future_m[..., 1], -example.future_m[..., 1])
    assert np.abs(example.future_m[..., 1]).max() > 0.01
