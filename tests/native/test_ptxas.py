"""Tests that messages of ptxas are read as numbers and short names of kernels."""

from __future__ import annotations

import shutil

import pytest

from dacergnn.native.ptxas import KernelUsage, kernel_usages

SYMBOLS = {
    "3 Sum": "_ZN8dacergnn4cuda3runILi256ENS0_7SeveralINS0_3SumEiLi3EEEEEvT0_",
    "Row + Hub": "_ZN8dacergnn4cuda3runILi256ENS0_8TogetherIJNS0_3RowIfLi2EEENS0_3HubIfEEEEEEEvT0_",
    "Row": "_ZN8dacergnn4cuda3runILi128ENS0_3RowIfLi2EEEEEvT0_",
}
MESSAGES = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '{symbol}' for 'sm_90'
ptxas info    : Function properties for {symbol}
    {stack} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads
ptxas info    : Used {registers} registers, used 1 barriers{shared}
ptxas info    : Compile time = 23.954 ms
"""


def messages(symbol: str, stack: int = 0, stores: int = 0, loads: int = 0, shared: str = "") -> str:
    return MESSAGES.format(symbol=symbol, stack=stack, stores=stores, loads=loads, registers=46, shared=shared)


def test_numbers_of_several_kernels() -> None:
    row, hub = kernel_usages(messages("row", 8, 12, 16) + messages("hub", shared=", 1088 bytes smem"))
    assert row == KernelUsage("row", "sm_90", 46, 8, 28, 0, "row")
    assert hub == KernelUsage("hub", "sm_90", 46, 0, 0, 1088, "hub")
    assert kernel_usages("") == []


@pytest.mark.skipif(shutil.which("c++filt") is None, reason="there is no c++filt here")
def test_names() -> None:
    usages = kernel_usages("".join(messages(symbol) for symbol in SYMBOLS.values()))
    assert [usage.symbol for usage in usages] == [*SYMBOLS.values()]
    assert usages[2].name == "Row<float, 2>"
    assert [usage.short_name for usage in usages[1:]] == ["Row + Hub", "Row"]


def test_names_without_a_demangler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    (usage,) = kernel_usages(messages(SYMBOLS["Row"]))
    assert (usage.name, usage.short_name) == (SYMBOLS["Row"], "Row")
