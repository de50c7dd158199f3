"""Sets up logs by area: ``DACERGNN_LOGS=passes,build`` (or ``all``) shows what these areas do, on standard error."""

from __future__ import annotations

import logging
import os

AREAS = ("passes", "build", "cache", "modules")


def configure_logs() -> None:
    """Switches on the areas that ``DACERGNN_LOGS`` names; a warning in the log reports unknown names."""
    names = [n.strip() for n in os.environ.get("DACERGNN_LOGS", "").split(",") if n.strip()]
    if not names:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    root = logging.getLogger("dacergnn")
    root.addHandler(handler)
    for name in AREAS if "all" in names else names:
        if name not in AREAS:
            root.warning("DACERGNN_LOGS: there is no area %r; areas: %s, or all", name, ", ".join(AREAS))
        logging.getLogger(f"dacergnn.{name}").setLevel(logging.INFO)
