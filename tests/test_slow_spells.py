"""Drivers who slow down without a reason."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from waycode.sources.sumo.episode import EpisodeSeed, run_episode
from waycode.sources.sumo.families import Family
from waycode.sources.sumo.slow_spells import SHARE_OF_DRIVERS, SlowSpell, SlowSpellController, draw_spells


class Road:
    """A SUMO that drives nobody, and notes what it is told."""

    def __init__(self, **speeds_mps: float):
        self.told: list[tuple[Any, ...]] = []
        self.vehicle = SimpleNamespace(
            getIDList=lambda: list(speeds_mps),
            getSpeed=speeds_mps.__getitem__,
            slowDown=lambda *what: self.told.append(("slow", *what)),
            setSpeed=lambda *what: self.told.append(("keep", *what)),
        )


SPELL = SlowSpell(begin_s=2.0, speed_share=0.4, braking_mps2=2.0, hold_s=3.0)


def tell(
    road: Road, keeper: SlowSpellController, *, until_s: float, leave_out: tuple[str, ...] = ()
) -> dict[float, tuple[Any, ...]]:
    """What the keeper says, by the time at which it does."""
    said = {}
    for time_s in np.round(np.arange(0, until_s, 0.1), 1):
        before = len(road.told)
        keeper.before_step(road, float(time_s), excluded=leave_out)
        if len(road.told) > before:
            (said[float(time_s)],) = road.told[before:]
    return said


def test_a_spell_brakes_holds_and_ends() -> None:
    said = tell(road := Road(car=10.0), SlowSpellController({"car": SPELL}), until_s=12)
    # From 10 to 4 m/s at 2 m/s^2 takes 3 s; then 3 s at that speed.
    assert said == {2.0: ("slow", "car", 4.0, 3.0), 5.0: ("keep", "car", 4.0), 8.0: ("keep", "car", -1)}
    assert len(road.told) == 3


@pytest.mark.parametrize(
    ("speeds", "leave_out"),
    [
        pytest.param({"car": 2.0}, (), id="slow already"),
        pytest.param({"other": 10.0}, (), id="not there any more"),
        pytest.param({"car": 10.0}, ("car",), id="somebody else drives"),
    ],
)
def test_who_is_left_alone(speeds: dict[str, float], leave_out: tuple[str, ...]) -> None:
    assert tell(Road(**speeds), SlowSpellController({"car": SPELL}), until_s=12, leave_out=leave_out) == {}


def test_some_drivers_slow_down_and_always_the_same() -> None:
    departures = {f"car{number}": float(number) for number in range(400)}
    spells = draw_spells(departures, np.random.default_rng(3))
    assert spells == draw_spells(departures, np.random.default_rng(3))
    assert len(spells) / 400 == pytest.approx(SHARE_OF_DRIVERS, abs=0.1)
    assert all(spells[car].begin_s > departures[car] for car in spells)


def test_scenes_of_the_first_version_have_no_spells_and_the_same_network() -> None:
    old, new = (
        run_episode(EpisodeSeed(family=Family.CURVED_ROAD, numbers=(5, 0, 0), version=version), window_s=9.0)
        for version in (1, 2)
    )
    assert [track.id for track in old.recording.tracks][:5] == [track.id for track in new.recording.tracks][:5]

    def slowest(episode: Any) -> float:
        tracks = episode.recording.tracks
        cars = [track for track in tracks if track.id.startswith("car") and len(track.heading_rad) > 100]
        speeds = [np.linalg.norm(np.diff(car.position_m[20:-20], axis=0), axis=-1).min() / 0.1 for car in cars]
        return float(np.median(speeds))

    assert slowest(new) < slowest(old) - 1
