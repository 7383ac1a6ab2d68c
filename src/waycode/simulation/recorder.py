"""Writes a run down as it happens, and shows it as a scene whose current step is now."""

from dataclasses import replace

import numpy as np

from waycode.driving import Vehicle, VehicleState
from waycode.scene import Route, Scene, Signals, Tracks
from waycode.scene.frames import wrap_angle
from waycode.simulation.traffic import Snapshot

OVER_TIME = ("x_m", "y_m", "heading_rad", "vx_mps", "vy_mps", "valid")
PER_TRACK = ("types", "length_m", "width_m")


class Recorder:
    """Arrays over the scene's history and the run, filled step by step; what it shows are views, never copies.

    Steps that have been shown are never written again. Road users that are new get new rows behind the others.
    """

    def __init__(self, scene: Scene, *, num_steps: int, route: Route | None):
        self._scene, self._route = scene, route
        self.now = scene.current_step
        self._length = self.now + 1 + num_steps
        tracks = scene.tracks
        self._ids = list(tracks.ids)
        self._tracks = {name: getattr(tracks, name).copy() for name in PER_TRACK}
        self._samples = {name: self._grown(getattr(tracks, name)) for name in OVER_TIME}
        signals = scene.signals
        self._states, self._lit = self._grown(signals.states), self._grown(signals.valid)
        self._row_of = {name: row for row, name in enumerate(tracks.ids)}
        self._known: tuple[tuple[str, ...], np.ndarray] = ((), np.zeros(0, np.int64))

    def add(self, snapshot: Snapshot, ego: VehicleState, *, vehicle: Vehicle) -> None:
        """The next step."""
        rows = self._rows(snapshot)
        self.now += 1
        self._write(rows, snapshot)
        row = self._scene.tracks.ego_index
        centre, velocity = ego.centre_m(vehicle)[0], ego.centre_velocity_mps(vehicle)[0]
        heading = float(wrap_angle(ego.heading_rad)[0])
        values = (centre[0], centre[1], heading, velocity[0], velocity[1], True)
        for name, value in zip(OVER_TIME, values, strict=True):
            self._samples[name][row, self.now] = value
        self._states[:, self.now] = snapshot.signal_states
        self._lit[:, self.now] = snapshot.signal_valid

    def scene(self) -> Scene:
        """All that happened up to now, with the route that was given."""
        shown = slice(0, self.now + 1)
        ego = self._scene.tracks.ego_index
        tracks = Tracks(
            ids=tuple(self._ids),
            to_predict=np.array([ego], np.int32),
            ego_index=ego,
            **self._tracks,
            **{name: values[:, shown] for name, values in self._samples.items()},
        )
        signals: Signals = self._scene.signals
        if len(signals):
            signals = replace(signals, states=self._states[:, shown], valid=self._lit[:, shown])
        return replace(self._scene, current_step=self.now, tracks=tracks, signals=signals, route=self._route)

    def _grown(self, recorded: np.ndarray) -> np.ndarray:
        """The recorded history with room for the run."""
        room = np.zeros((recorded.shape[0], self._length), recorded.dtype)
        history = recorded[:, : self._scene.current_step + 1]
        room[:, : history.shape[1]] = history
        return room

    def _rows(self, snapshot: Snapshot) -> np.ndarray:
        """Where the road users of a snapshot are written; makes rows for new ones."""
        if snapshot.ids is self._known[0]:
            return self._known[1]
        new = [index for index, name in enumerate(snapshot.ids) if name not in self._row_of]
        for index in new:
            self._row_of[snapshot.ids[index]] = len(self._ids)
            self._ids.append(snapshot.ids[index])
        if new:
            for name, values in self._tracks.items():
                added = getattr(snapshot, name)[new].astype(values.dtype)
                self._tracks[name] = np.concatenate([values, added])
            for name, values in self._samples.items():
                self._samples[name] = np.concatenate([values, np.zeros((len(new), self._length), values.dtype)])
        rows = np.array([self._row_of[name] for name in snapshot.ids], np.int64)
        self._known = (snapshot.ids, rows)
        return rows

    def _write(self, rows: np.ndarray, snapshot: Snapshot) -> None:
        """The others at this step; what is not valid stays zero."""
        rows, there = rows[snapshot.valid], snapshot.valid
        values = (
            snapshot.position_m[there, 0],
            snapshot.position_m[there, 1],
            wrap_angle(snapshot.heading_rad[there].astype(np.float64)),
            snapshot.velocity_mps[there, 0],
            snapshot.velocity_mps[there, 1],
            True,
        )
        for name, value in zip(OVER_TIME, values, strict=True):
            self._samples[name][rows, self.now] = value
