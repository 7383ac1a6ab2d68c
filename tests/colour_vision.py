"""How far apart colours look to people with each kind of colour vision."""

import numpy as np

# Linear RGB as seen without one kind of cone (Machado, Oliveira and Fernandes 2009, severity 1).
VISIONS = {
    "normal": np.eye(3),
    "protanopia": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    "deuteranopia": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    "tritanopia": np.array([[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]]),
}  # fmt: skip
_TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
_WHITE = np.array([0.9505, 1.0, 1.089])


def difference(one: str, other: str, *, vision: str) -> float:
    """Distance of two colours such as "#00897b" in CIELAB; about 2 can just be told apart side by side."""
    return float(np.linalg.norm(_lab(one, vision) - _lab(other, vision)))


def _lab(colour: str, vision: str) -> np.ndarray:
    encoded = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    xyz = _TO_XYZ @ np.clip(VISIONS[vision] @ linear, 0, 1) / _WHITE
    root = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * root[1] - 16, 500 * (root[0] - root[1]), 200 * (root[1] - root[2])])
