"""Arrays of a library share memory only if they are not needed at the same time."""

from __future__ import annotations

from dacergnn.deploy.slots import shared_places


def test_an_array_that_a_step_reads_keeps_its_place_until_the_step_is_over() -> None:
    places = shared_places({"read": ("n", 0, 2), "written": ("n", 2, 3), "later": ("n", 3, 4), "other": ("m", 4, 4)})
    assert places["written"] != places["read"]
    assert places["later"] == places["read"]
    assert len(set(places.values())) == 3
