"""Writes the addresses of rows in the CUDA of loop nests."""

from __future__ import annotations

from dacergnn.library_nodes.node import PREFIX
from dacergnn.library_nodes.traversal.device_plan import DevicePlan
from dacergnn.library_nodes.traversal.places import Number, Place


def kind_of(place: Place | None) -> str:
    """Returns the type of elements at a place."""
    return "Storage" if place is None or place.where == "memory" else "Value"


def pointer_to(plan: DevicePlan, place: Place) -> str:
    """Returns the pointer to a row."""
    name, width = place.array, plan.arrays.width(place.array)
    if place.where == "copy":
        return f"copy_{name} + part.chunk() * {width}"
    assert place.row is not None
    return f"{'kept_' if place.where == 'scratch' else PREFIX}{name} + {number_text(place.row)} * {width}"


def number_text(number: Number) -> str:
    """Returns the number of a row as CUDA."""
    if number.encoding is not None:
        return f"int64_t(__ldg({PREFIX}{number.encoding} + {number.variable}))"
    return number.variable
