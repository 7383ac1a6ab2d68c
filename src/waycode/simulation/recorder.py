"""Records a run step by step, and returns the run so far as a scene. Axes: A other road users, T steps."""

from dataclasses import replace

import numpy as np

from waycode.driving import Vehicle, VehicleState
from waycode.scene import Route, Scene, Signals, Tracks
from waycode.scene.frames import wrap_angle
from waycode.simulation.history import PER_STEP, PER_TRACK
from waycode.simulation.traffic import Snapshot


class Recorder:
    """Arrays over the scene's history and the run.

    `scene()` returns views of the arrays without copying: past steps are never written again. New road users get new
    rows at the end.
    """

    def __init__(self, scene: Scene, *, num_steps: int, route: Route | None):
        """Starts at the scene's current step.

        Args:
            scene: the recorded scene; its future is not used.
            num_steps: number of steps that will be added.
            route: the route that the driver is given.
        """
        self._scene, self._route = scene, route
        self.now = scene.current_step
        self._length = self.now + 1 + num_steps
        tracks = scene.tracks
        self._ids = list(tracks.ids)
        self._tracks = {name: getattr(tracks, name).copy() for name in PER_TRACK}
        self._samples = {name: self._extended(getattr(tracks, name)) for name in PER_STEP}
        signals = scene.signals
        self._signal_states, self._signal_valid = self._extended(signals.states), self._extended(signals.valid)
        self._row_of = {name: row for row, name in enumerate(tracks.ids)}
        self._last_rows: tuple[tuple[str, ...], np.ndarray] = ((), np.zeros(0, np.int64))

    def add(self, snapshot: Snapshot, ego: VehicleState, *, vehicle: Vehicle) -> None:
        """Appends a step: the other road users and signals of `snapshot`, and the ego."""
        rows, seen = self._rows(snapshot), snapshot.valid
        self.now += 1
        others = (
            snapshot.position_m[seen, 0],
            snapshot.position_m[seen, 1],
            wrap_angle(snapshot.heading_rad[seen].astype(np.float64)),
            snapshot.velocity_mps[seen, 0],
            snapshot.velocity_mps[seen, 1],
            True,
        )
        centre, velocity = ego.centre_m(vehicle)[0], ego.centre_velocity_mps(vehicle)[0]
        own = (centre[0], centre[1], float(wrap_angle(ego.heading_rad)[0]), velocity[0], velocity[1], True)
        for name, other_values, own_value in zip(PER_STEP, others, own, strict=True):
            self._samples[name][rows[seen], self.now] = other_values  # invalid ones stay zero
            self._samples[name][self._scene.tracks.ego_index, self.now] = own_value
        self._signal_states[:, self.now] = snapshot.signal_states
        self._signal_valid[:, self.now] = snapshot.signal_valid

    def scene(self) -> Scene:
        """The run up to now, which is the scene's current step, with the driver's route."""
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
            signals = replace(signals, states=self._signal_states[:, shown], valid=self._signal_valid[:, shown])
        return replace(self._scene, current_step=self.now, tracks=tracks, signals=signals, route=self._route)

    def _extended(self, recorded: np.ndarray) -> np.ndarray:
        """The recorded history, with zeros for the steps to come."""
        history = recorded[:, : self.now + 1]
        extended = np.zeros((recorded.shape[0], self._length), recorded.dtype)
        extended[:, : history.shape[1]] = history
        return extended

    def _rows(self, snapshot: Snapshot) -> np.ndarray:
        """The row of each road user of a snapshot; appends rows for new ones."""
        if snapshot.ids is self._last_rows[0]:  # traffic passes the same tuple on while it adds no road user
            return self._last_rows[1]
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
        self._last_rows = (snapshot.ids, rows)
        return rows
