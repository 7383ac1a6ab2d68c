"""All targets of fuzzing: whatever reads files or text of others."""

from fuzz_base import Target
from fuzz_folders import DatasetFolder, IndexFile, ModelFolder, RunFolder, ScoresFolder
from fuzz_sources import Argoverse2, GpuDrive, NuplanLog, NuplanMap, Womd
from fuzz_text import ObjectiveText, OddScenes, PlanJson, StudioRequests

TARGETS: tuple[type[Target], ...] = (
    GpuDrive, Argoverse2, Womd, NuplanLog, NuplanMap, DatasetFolder, ModelFolder, RunFolder, ScoresFolder, IndexFile,
    ObjectiveText, PlanJson, StudioRequests, OddScenes,
)  # fmt: skip
