"""Drivers and traffic by the names of the command line."""

from dataclasses import dataclass, field
from typing import Any, Literal

from waycode.baselines import ConstantVelocity, IdmDriver, LogReplay, PdmClosed
from waycode.driving import Driver
from waycode.scene import Scene
from waycode.simulation.drivers import PAPER, ImitationDriver, LatentConfig, LatentDriver
from waycode.simulation.errors import SimulationError
from waycode.simulation.idm_traffic import IdmTraffic
from waycode.simulation.traffic import ReplayTraffic, Traffic

PLANNERS = ("latent", "paper", "pdm-closed", "idm", "constant-velocity", "replay", "imitation")
TrafficName = Literal["replay", "idm", "sumo"]


@dataclass(frozen=True, kw_only=True)
class DriverSpec:
    """A driver as plain values, which can be sent to another process."""

    name: str = "latent"  # one of PLANNERS
    model: str = "sumo-small"  # bundled name, model folder or run folder; for drivers with a model
    latent: LatentConfig = field(default_factory=LatentConfig)  # for "latent"; "paper" has `PAPER`

    def __post_init__(self) -> None:
        if self.name not in PLANNERS:
            raise SimulationError(f"there is no planner {self.name!r}; available: {', '.join(PLANNERS)}")
        if self.name == "paper":  # part of the value: stored results are kept apart by it
            object.__setattr__(self, "latent", PAPER)

    @property
    def has_model(self) -> bool:
        """Whether the driver uses `model`."""
        return self.name in ("latent", "paper", "imitation")

    def build(self, scene: Scene) -> Driver[Any]:
        """The driver for one scene; only log replay depends on it."""
        if self.name in ("latent", "paper"):
            return LatentDriver(planner=self.model, config=self.latent)
        if self.name == "imitation":
            return ImitationDriver(planner=self.model)
        if self.name == "replay":
            return LogReplay(scene)
        simple: dict[str, Driver[Any]] = {
            "pdm-closed": PdmClosed(),
            "idm": IdmDriver(),
            "constant-velocity": ConstantVelocity(),
        }
        return simple[self.name]


def build_traffic(name: TrafficName) -> Traffic[Any]:
    """Traffic by its name. SUMO's starts a process at its first step and ends it with the object."""
    if name == "replay":
        return ReplayTraffic()
    if name == "idm":
        return IdmTraffic()
    try:
        from waycode.simulation.sumo_traffic import SumoTraffic
    except ImportError as error:
        raise SimulationError(
            f"traffic 'sumo' needs SUMO, which is not installed ({error}): pip install 'waycode[sumo]', "
            "or use replay or idm"
        ) from error
    return SumoTraffic()
