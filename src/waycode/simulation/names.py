"""The names of drivers and kinds of traffic, in a module that imports nothing: the command line shows them at once."""

from typing import Literal

DriverName = Literal["latent", "paper", "pdm-closed", "idm", "constant-velocity", "replay", "imitation"]
TrafficKind = Literal["replay", "idm", "sumo"]
