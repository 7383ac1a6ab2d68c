"""The Waymo Open Motion Dataset, read from TFRecords of `Scenario` messages without TensorFlow."""

from waycode.sources.womd.source import WomdSource, read

__all__ = ["WomdSource", "read"]
