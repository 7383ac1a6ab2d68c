"""The studio: a web page on loopback to plan by clicking, and the API behind it.

`Studio` holds the scenes, the model and the processes that compute; `create_app` serves it. Needs `waycode[studio]`.
"""

from waycode.studio.app import create_app
from waycode.studio.errors import StudioError
from waycode.studio.studio import Studio, StudioLimits

__all__ = ["Studio", "StudioError", "StudioLimits", "create_app"]
