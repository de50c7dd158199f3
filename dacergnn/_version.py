"""Holds the version of this package, for modules of all layers."""

from __future__ import annotations

VERSION = "0.1.0"
