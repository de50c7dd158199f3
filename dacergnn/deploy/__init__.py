"""Exports trained models, so that they run without Python."""

from __future__ import annotations

from dacergnn.deploy.capture import dynamic_shapes
from dacergnn.deploy.library import ExportedLibrary, export
from dacergnn.deploy.loading import load_exported
from dacergnn.deploy.package import ExportedPackage, export_package

__all__ = [
    "ExportedLibrary",
    "ExportedPackage",
    "dynamic_shapes",
    "export",
    "export_package",
    "load_exported",
]
