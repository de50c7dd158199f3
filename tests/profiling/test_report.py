"""Profiles are shown as a table with a verdict, as JSON, and as a picture."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dacergnn import Rates
from dacergnn.bench.scatter import NOTE
from dacergnn.cost import Cost
from dacergnn.errors import DacergnnError
from dacergnn.profiling import OperatorProfile, OperatorTime
from dacergnn.profiling.figure import save

PRODUCT = OperatorTime(
    "rgat", ("a", "b"), "forward", "segment GEMM", ("hs",), ('p["hs"] = linear(p.src["x"], W[p.etype])',),
    2, 2.0, Cost(flops=10**8, streamed=6 * 10**6, gathered=2 * 10**6), 1.0,
)  # fmt: skip
LOOP = replace(
    PRODUCT, layers=(), role="backward", kind="traversal", results=("grad_att", "grad_tmp"),
    statements=('e["grad_att"] = e["a"]', 'e.dst["grad_tmp"] += e["grad_att"]'), runs=1, ms=8.0, bound_ms=2.0,
)  # fmt: skip
PROFILE = OperatorProfile((PRODUCT, LOOP), 12.5, Rates(1e11, 1e10, 1e10, 1e9))


def test_figures_of_an_operator() -> None:
    assert (PRODUCT.gflops, PRODUCT.gbytes, PRODUCT.roofline, PRODUCT.excess_ms) == (50.0, 4.0, 0.5, 1.0)


def test_table() -> None:
    lines = str(PROFILE).splitlines()
    assert max(map(len, lines)) <= 120
    words = [line.split() for line in lines]
    assert ["forward", "rgat", "in", "a,", "b,", "2", "runs", "2.000"] in words
    assert ["hs", "segment", "GEMM", 'p["hs"]', "=", 'linear(p.src["x"],', "W[p.etype])",
            "2.000", "50.0", "4.0", "50%"] in words  # fmt: skip
    assert ['e.dst["grad_tmp"]', "+=", 'e["grad_att"]'] in words
    assert ["all", "10.000", "30%"] in words
    assert "The call takes 12.500 ms; its operators, 80.0% of that." in lines
    assert PROFILE.verdict in " ".join(line.strip() for line in lines)


def test_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    narrow, wide = str(PROFILE), PROFILE.text(wide=True)
    assert max(map(len, [*narrow.splitlines(), *wide.splitlines()])) <= 80
    assert ["grad_att,", "grad_tmp", "traversal", "8.000", "12.5", "1.0", "25%"] in [
        line.split() for line in narrow.splitlines()
    ]
    assert "Left out for want of room: does;" in narrow
    assert 'linear(p.src["x"],' in wide


def test_what_beats_its_bound_is_explained_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    explained = "Above 100 %: caches beat the measured rates of memory, or kernels beat torch's."
    fast = replace(PROFILE, operators=(replace(PRODUCT, ms=0.5), LOOP))
    assert (explained in str(fast).splitlines(), explained in str(PROFILE)) == (True, False)


def test_parts_that_exceed_their_whole() -> None:
    lines = str(replace(PROFILE, call_ms=9.0, operators=(replace(PRODUCT, scatters=True), LOOP))).splitlines()
    expected = "The call takes 9.000 ms; its operators, measured apart with clocks between them, sum to 10.000 ms."
    assert expected in lines
    assert any("2.000*" in line for line in lines)
    assert NOTE in lines


def test_verdict() -> None:
    assert PROFILE.slowest is LOOP
    assert PROFILE.verdict == (
        "The traversal of grad_att, grad_tmp (backward of rgat) keeps the call from its bound: it takes 8 ms, "
        "6 ms above its bound."
    )
    fast = replace(PROFILE, operators=(replace(PRODUCT, ms=0.5),))
    assert fast.verdict == (
        "No operator takes longer than its bound; the segment GEMM of hs (forward of rgat in a, b) is closest to it."
    )


def test_json() -> None:
    found = json.loads(PROFILE.to_json())
    assert (found["ms"], found["bound_ms"], found["call_ms"], found["verdict"]) == (10.0, 3.0, 12.5, PROFILE.verdict)
    assert found["rates"]["flops"] == 1e11
    assert found["operators"][1]["results"] == ["grad_att", "grad_tmp"]
    assert found["operators"][0]["cost"]["flops"] == 10**8
    assert found["operators"][0]["gflops"] == 50.0


def test_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    PROFILE.plot(tmp_path / "one.svg", "RGAT on a graph")
    assert (tmp_path / "one.svg").read_text().startswith("<?xml")
    save({"O0": PROFILE.operators, "O2": PROFILE.operators}, tmp_path / "two.png")
    assert (tmp_path / "two.png").stat().st_size > 1000
    with pytest.raises(DacergnnError, match=r"one\.docx: .*not supported"):
        PROFILE.plot(tmp_path / "one.docx")
