"""Imports all that `import dacergnn` offers."""

from dacergnn import datasets
from dacergnn import deploy as deploy
from dacergnn.api import compile, explain, optimize, revert
from dacergnn.config import Config, Rates
from dacergnn.deploy.library import export
from dacergnn.deploy.loading import load_exported
from dacergnn.errors import (
    ArrayError,
    BuildError,
    CacheError,
    DacergnnError,
    DatasetError,
    DeviceError,
    DistributedError,
    EncodingError,
    GraphError,
    MemoryLimitError,
    ProgramError,
    UnsupportedCallError,
    UnsupportedLayerError,
    UnsupportedMachineError,
    VerificationError,
)
from dacergnn.graph import HeteroGraph
from dacergnn.layerwise import inference
from dacergnn.modules.warming import warmup
from dacergnn.plan import Plan
from dacergnn.profiling import profile
from dacergnn.program import interpret, parse, print_plans, print_program

__all__ = [
    "ArrayError",
    "BuildError",
    "CacheError",
    "Config",
    "DacergnnError",
    "DatasetError",
    "DeviceError",
    "DistributedError",
    "EncodingError",
    "GraphError",
    "HeteroGraph",
    "MemoryLimitError",
    "Plan",
    "ProgramError",
    "Rates",
    "UnsupportedCallError",
    "UnsupportedLayerError",
    "UnsupportedMachineError",
    "VerificationError",
    "compile",
    "datasets",
    "explain",
    "export",
    "inference",
    "interpret",
    "load_exported",
    "optimize",
    "parse",
    "print_plans",
    "print_program",
    "profile",
    "revert",
    "warmup",
]
