"""Slow spells: drivers slow down for a while without an obstacle, for example to look for an address.

SUMO's drivers only brake for a reason. A model that is trained on them alone cannot plan to slow down without one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

SHARE_OF_DRIVERS = 0.5  # that have one slow spell
_LATEST_BEGIN_S = 25.0  # after departure
_MIN_SPEED_MPS = 3.0  # slower vehicles do not slow down further


@dataclass(frozen=True, kw_only=True)
class SlowSpell:
    """One slow spell of a driver."""

    begin_s: float  # time in the episode
    speed_share: float  # of the speed at the beginning
    braking_mps2: float  # deceleration down to the low speed
    hold_s: float  # duration at the low speed


def draw_spells(departures_s: dict[str, float], rng: np.random.Generator) -> dict[str, SlowSpell]:
    """Draws slow spells, by vehicle id, for some of the vehicles with these departure times."""
    spells = {}
    for vehicle, depart_s in departures_s.items():
        is_slow, begin, share, braking, hold = rng.uniform(size=5)
        if is_slow < SHARE_OF_DRIVERS:
            spells[vehicle] = SlowSpell(
                begin_s=round(depart_s + 1 + begin * _LATEST_BEGIN_S, 1),
                speed_share=0.1 + 0.6 * share,
                braking_mps2=0.6 + 1.4 * braking,
                hold_s=2 + 6 * hold,
            )
    return spells


class SlowSpellController:
    """Applies slow spells to the vehicles of a running simulation."""

    def __init__(self, spells: dict[str, SlowSpell]):
        self._spells = spells
        # (time, vehicle, speed to set); a spell that is to begin has no speed yet.
        self._events: list[tuple[float, str, float | None]] = [
            (spell.begin_s, vehicle, None) for vehicle, spell in spells.items()
        ]

    def before_step(self, sumo: Any, time_s: float, *, excluded: Sequence[str] = ()) -> None:
        """Applies all changes of speed that are due; call it before each step.

        Args:
            sumo: the `libsumo` module.
            time_s: time in the episode.
            excluded: vehicles that are controlled from outside.
        """
        due = [event for event in self._events if event[0] <= time_s]
        if not due:
            return
        self._events = [event for event in self._events if event[0] > time_s]
        present = set(sumo.vehicle.getIDList()) - set(excluded)
        for _, vehicle, speed_mps in due:
            if vehicle not in present:
                continue
            if speed_mps is None:
                self._begin(sumo, vehicle, time_s)
            else:
                sumo.vehicle.setSpeed(vehicle, speed_mps)

    def _begin(self, sumo: Any, vehicle: str, time_s: float) -> None:
        speed_mps = sumo.vehicle.getSpeed(vehicle)
        if speed_mps < _MIN_SPEED_MPS:
            return
        spell = self._spells[vehicle]
        slow_mps = spell.speed_share * speed_mps
        braking_s = (speed_mps - slow_mps) / spell.braking_mps2
        sumo.vehicle.slowDown(vehicle, slow_mps, braking_s)
        self._events.append((time_s + braking_s, vehicle, slow_mps))
        self._events.append((time_s + braking_s + spell.hold_s, vehicle, -1))  # -1: SUMO's own speed again
