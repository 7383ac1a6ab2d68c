"""A scene seen from another side: everything in it moved and turned together."""

from dataclasses import replace

import numpy as np
from jaxtyping import Float

from waycode.scene import MapFeatures, Polylines, Scene
from waycode.scene.frames import rotate, wrap_angle


class Turn:
    """Moves a point of the scene frame to the origin and turns the world counter-clockwise around it."""

    def __init__(self, centre_m: Float[np.ndarray, "2"], *, angle_rad: float):
        self.centre_m, self.angle_rad = centre_m.astype(np.float64), angle_rad

    def points(self, points_m: Float[np.ndarray, "*shape 2"]) -> Float[np.ndarray, "*shape 2"]:
        return rotate(points_m - self.centre_m, self.angle_rad)

    def scene(self, scene: Scene) -> Scene:
        """The scene to look at; its origin no longer tells where it is in the world."""
        tracks = scene.tracks
        position = self.points(tracks.position_m).astype(np.float32)
        velocity = rotate(np.stack([tracks.vx_mps, tracks.vy_mps], axis=-1), self.angle_rad).astype(np.float32)
        moved = replace(
            tracks,
            x_m=position[..., 0],
            y_m=position[..., 1],
            heading_rad=wrap_angle(tracks.heading_rad + self.angle_rad).astype(np.float32),
            vx_mps=velocity[..., 0],
            vy_mps=velocity[..., 1],
        )
        signals = replace(scene.signals, stop_point_m=self.points(scene.signals.stop_point_m).astype(np.float32))
        return replace(scene, tracks=moved, map=self._map(scene.map), signals=signals)

    def _map(self, features: MapFeatures) -> MapFeatures:
        signs = features.stop_signs
        return replace(
            features,
            lanes=replace(features.lanes, centrelines=self._polylines(features.lanes.centrelines)),
            stop_signs=replace(signs, position_m=self.points(signs.position_m).astype(np.float32)),
            road_lines=self._polylines(features.road_lines),
            road_edges=self._polylines(features.road_edges),
            crosswalks=self._polylines(features.crosswalks),
            speed_bumps=self._polylines(features.speed_bumps),
            driveways=self._polylines(features.driveways),
            drivable_areas=self._polylines(features.drivable_areas),
        )

    def _polylines(self, polylines: Polylines) -> Polylines:
        return Polylines(self.points(polylines.points_m).astype(np.float32), polylines.starts)
