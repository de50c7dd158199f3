"""The header of an exported model."""

from __future__ import annotations

from dacergnn.deploy.interface import constant_names


def test_constants_differ_from_each_other_and_from_those_of_the_interface() -> None:
    inputs, outputs = constant_names("own", ["inputs", "done", "out", "a.b", "a_b"], ["out", "outputs", "too small"])
    assert inputs == ["OWN_INPUTS_2", "OWN_DONE_2", "OWN_OUT", "OWN_A_B", "OWN_A_B_2"]
    assert outputs == ["OWN_OUT_2", "OWN_OUTPUTS_2", "OWN_TOO_SMALL_2"]
