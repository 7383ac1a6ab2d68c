"""Tracks from observations in world coordinates."""

import numpy as np

from waycode.scene import TrackType
from waycode.sources.world import WorldTracks, velocity_from_positions


def test_unobserved_samples_do_not_matter_and_velocities_come_from_positions() -> None:
    position = np.full((2, 5, 2), np.nan)
    position[0] = [[5e6 + 1.0 * step, 2e6 - 0.5 * step] for step in range(5)]
    position[1, [0, 1, 3]] = [[5e6, 2e6], [5e6 + 2, 2e6], [5e6, 2e6 + 7]]
    valid = np.isfinite(position[..., 0])
    tracks = WorldTracks(
        ids=["a", "b"],
        types=[TrackType.VEHICLE, TrackType.CYCLIST],
        length_m=np.array([4.5, 1.8]),
        width_m=np.array([1.9, 0.6]),
        position_m=position,
        heading_rad=np.where(valid, 2 * np.pi + 0.5, -1e4),
        velocity_mps=velocity_from_positions(position, valid, dt_s=0.1),
        valid=valid,
    ).in_scene_frame((5e6, 2e6))
    np.testing.assert_allclose(tracks.x_m[0], np.arange(5.0))
    np.testing.assert_allclose(tracks.vx_mps[0], 10.0)
    np.testing.assert_allclose(tracks.vy_mps[0], -5.0)
    np.testing.assert_allclose(tracks.vx_mps[1], [20.0, 20.0, 0.0, 0.0, 0.0])  # one-sided beside the gap, zero alone
    np.testing.assert_allclose(tracks.heading_rad[valid], 0.5, atol=1e-4)
    for values in (tracks.x_m, tracks.y_m, tracks.heading_rad, tracks.vx_mps, tracks.vy_mps):
        assert np.all(values[~valid] == 0)
