"""Vehicles that stand start along their heading: by hand, and in real scenes that the model has never seen."""

from dataclasses import replace
from math import radians
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from roads import candidates_in, road, straight
from waycode import Planner, Scene
from waycode.objectives import Setting
from waycode.planner.starting import stands, starts_along_heading
from waycode.scene import TrackType
from waycode.scene.frames import wrap_angle


def towards(angle_rad: float, *, length_m: float = 12.0, steps: int = 40) -> Tensor:
    """A straight path from the origin, [1, T, 2]."""
    along = torch.linspace(0, length_m, steps + 1, dtype=torch.float64)[1:]
    return torch.stack([along * np.cos(angle_rad), along * np.sin(angle_rad)], dim=-1)[None]


def step_angles_rad(position_m: Tensor) -> Tensor:
    step = torch.diff(position_m, dim=1, prepend=torch.zeros_like(position_m[:, :1]))
    return torch.atan2(step[..., 1], step[..., 0])


@pytest.mark.parametrize("degrees", [-80.0, -20.0, 47.0, 89.0])
def test_a_path_to_the_side_becomes_a_turn(degrees: float) -> None:
    path = towards(radians(degrees))
    angle = step_angles_rad(starts_along_heading(path))
    travelled = torch.linspace(0, 12.0, 41, dtype=torch.float64)[1:]
    expected = torch.minimum(0.25 * travelled, torch.tensor(abs(radians(degrees)), dtype=torch.float64))
    torch.testing.assert_close(angle[0], np.sign(degrees) * expected)
    assert angle[0, 0].abs() < radians(5)
    assert angle[0, -1] == pytest.approx(radians(degrees))


def test_a_path_that_a_car_can_drive_is_not_changed() -> None:
    heading = 0.2 * torch.arange(80) * 0.1  # a curvature of 0.2 / m at 1 m/s
    drivable = torch.cumsum(0.1 * torch.stack([heading.cos(), heading.sin()], dim=-1), dim=0)[None]
    torch.testing.assert_close(starts_along_heading(drivable), drivable)
    still = torch.zeros(2, 80, 2)
    torch.testing.assert_close(starts_along_heading(still), still)


def test_nobody_starts_backwards() -> None:
    assert starts_along_heading(towards(np.pi))[0].abs().max() < 1e-9
    assert starts_along_heading(towards(radians(170), length_m=1.0))[0, :, 0].min() >= 0


def test_gradients_pass() -> None:
    path = (towards(0.5) + 0.01).requires_grad_()
    starts_along_heading(path)[0, -1].sum().backward()  # type: ignore[no-untyped-call]
    assert path.grad is not None
    assert torch.isfinite(path.grad).all()
    still = torch.zeros(1, 10, 2, requires_grad=True)
    starts_along_heading(still).sum().backward()  # type: ignore[no-untyped-call]
    assert still.grad is not None
    assert torch.isfinite(still.grad).all()


@pytest.mark.parametrize(
    ("kind", "speed_mps", "expected"),
    [
        (TrackType.VEHICLE, 0.0, True),
        (TrackType.CYCLIST, 0.2, True),
        (TrackType.VEHICLE, 3.0, False),
        (TrackType.PEDESTRIAN, 0.0, False),
    ],
)
def test_only_what_has_wheels_and_stands_is_meant(kind: TrackType, speed_mps: float, expected: bool) -> None:
    scene = road(speed_mps=speed_mps)
    types = np.full(len(scene.tracks), kind, np.int8)
    scene = replace(scene, tracks=replace(scene.tracks, types=types))
    assert stands(Setting(scene=scene, agent=0)) == expected


def test_the_heading_of_a_car_that_stands_is_its_own() -> None:
    still = candidates_in(road(), straight(speed_mps=0.0))
    assert still.heading_rad.abs().max() == 0


def real_scenes(shared_data: Path, count: int) -> list[Scene]:
    from waycode.sources.gpudrive import GpuDriveSource

    source = GpuDriveSource(shared_data / "womd-json")
    return [source.read(reference) for reference in source.references()[:count]]


@pytest.mark.real_data
def test_real_cars_that_stand_start_along_their_heading(shared_data: Path) -> None:
    planner = Planner.from_pretrained("sumo-small")
    num_starts = 0
    for scene in real_scenes(shared_data, 12):
        tracks, now = scene.tracks, scene.current_step
        standing = tracks.valid[:, now] & (tracks.speed_mps[:, now] < 0.5) & (tracks.types == TrackType.VEHICLE)
        for track in np.flatnonzero(standing)[:2]:
            view, own = planner.encode(scene, int(track)), float(tracks.heading_rad[track, now])
            for objective in ("likelihood", "goal-point(20, 3, frame=agent)"):
                plan = view.plan(objective)
                path = np.concatenate([tracks.position_m[track, now][None], plan.position_in(scene)])
                away = np.linalg.norm(path - path[0], axis=1)
                starts = np.flatnonzero(away > 0.5)
                if len(starts) == 0:  # it stays
                    np.testing.assert_allclose(wrap_angle(plan.heading_rad - own), 0, atol=1e-5)
                    continue
                offset = path[starts[0]] - path[0]
                turned = abs(float(wrap_angle(np.array(np.arctan2(offset[1], offset[0]) - own))))
                assert turned < radians(10), (scene.id, tracks.ids[track], np.degrees(turned))
                num_starts += 1
    assert num_starts >= 5
