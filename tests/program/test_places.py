"""Statements know where they were written; nothing but messages and pictures depends on it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import dace
import pytest
import torch

from dacergnn import Config, DacergnnError, VerificationError
from dacergnn.frontends import ProgramSource
from dacergnn.graph.profile import TYPICAL
from dacergnn.library_nodes.label import label
from dacergnn.library_nodes.parse import parse_statement
from dacergnn.library_nodes.place import Place, at
from dacergnn.modules.programs import new_program
from dacergnn.program import Program, parse, print_program, verify
from dacergnn.program.source import PlacedText
from dacergnn.runtime.lower import lower
from dacergnn.sdfg_passes import compile_program
from dacergnn.sdfg_passes.differentiate import differentiate
from dacergnn.sdfg_passes.sparse_features import sparse_features

SOURCE = """
def layer(g, x, W):
    for e in g.edges():
        e["m"] = linear(e.src.x, W[e.etype])
        e["a"] = exp(dot_prd(e["m"], e.dst.x))
    for n in g.dst_nodes():
        n["out"] = sum(e["a"] * e["m"] for e in n.incoming_edges())
    return out
"""
ARRAYS: dict[str, Any] = {"x": "NS[8]", "W": "R[8, 8]"}


def defined(folder: Path, name: str, above: int = 0) -> Any:
    """The function of `SOURCE` in a file of its own, below some empty lines."""
    path = folder / f"{name}.py"
    path.write_text("\n" * above + SOURCE)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.layer


def test_builds_do_not_depend_on_places(tmp_path: Path) -> None:
    one, other = defined(tmp_path, "one"), defined(tmp_path, "other", above=5)
    codes, lines = [], []
    for function in (one, other):
        made = compile_program(parse(function, **ARRAYS), ["x", "W"], Config("O2"), dace.int32)
        codes.append([lower(part, made.saved).code for part in made.parts])
        places = [s.place for part in made.parts for o in Program(part).operators for s in o.statements]
        lines.append([place.line for place in places if place is not None])
        assert len(lines[-1]) == len(places)
    assert codes[0] == codes[1]
    assert [line + 5 for line in lines[0]] == lines[1]
    keys = [
        new_program(ProgramSource.of(f, **ARRAYS), torch.float32, torch.int32, Config("O2"), TYPICAL)
        for f in (one, other)
    ]
    assert keys[0].key == keys[1].key


def test_a_printed_program_keeps_the_places(tmp_path: Path) -> None:
    sdfg = parse(defined(tmp_path, "one", above=3), **ARRAYS)
    again = parse(print_program(sdfg))
    assert [o.place for o in Program(again).operators] == [o.place for o in Program(sdfg).operators]
    assert {o.place.line for o in Program(again).operators if o.place} == {7, 8, 10}


def test_placed_texts_are_equal_to_their_texts() -> None:
    text = PlacedText(SOURCE, [Place("layer.py", 7)])
    assert (text, hash(text)) == (SOURCE, hash(SOURCE))
    assert ProgramSource(text, ()) == ProgramSource(SOURCE, ())


def test_errors_in_a_placed_text_name_its_places() -> None:
    text = "def f(g, x: NS[4]):\n    for n in g.nodes():\n        n['y'] = expp(n.x)\n    return y\n"
    with pytest.raises(DacergnnError, match=r"^layer\.py:12:5: unknown operator expp\(\)"):
        parse(PlacedText(text, [None, None, Place("layer.py", 12, 5), None]))


def test_verification_names_the_statement(tmp_path: Path) -> None:
    function = defined(tmp_path, "one")
    sdfg = parse(function, **ARRAYS)
    operator = Program(sdfg).producer("a")
    assert operator is not None
    operator.body = ['e["a"] = e["m"]']
    where = rf"^{tmp_path}/one\.py:5:9: "
    with pytest.raises(VerificationError, match=where + "I7: "):
        verify(sdfg)
    with pytest.raises(DacergnnError, match=where):
        operator.validate(sdfg, Program(sdfg).state)


def test_plans_name_the_statement(tmp_path: Path) -> None:
    program = Program(parse(defined(tmp_path, "one"), **ARRAYS))
    product: Any = program.producer("m")
    product.row_tile = 12345
    with pytest.raises(VerificationError, match=rf"^{tmp_path}/one\.py:4:9: m: row_tile is 12345; "):
        product.plan("cpu", product.arrays(program.sdfg, program.state))


def test_passes_name_the_statement(tmp_path: Path) -> None:
    sdfg = parse(defined(tmp_path, "one"), **ARRAYS)
    with pytest.raises(DacergnnError, match=rf"^{tmp_path}/one\.py:5:9: x is sparse, but used in "):
        sparse_features(sdfg, ["x"])
    broken = Program(sdfg).producer("a")
    assert broken is not None
    broken.body = ['e["a"] = exp(reshape(e["m"], 3))']
    with pytest.raises(DacergnnError, match=rf"^{tmp_path}/one\.py:5:9: reshape: "):
        differentiate(sdfg, ["W"])


def raise_within(*places: Place | None) -> None:
    """Raises an error at places of which the last is the innermost."""
    for place in places[:1]:
        with at(place):
            raise_within(*places[1:])
    raise DacergnnError("why")


def test_an_error_has_one_place() -> None:
    with pytest.raises(DacergnnError, match=r"^inner\.py:2:3: why$") as caught:
        raise_within(Place("outer.py", 1), Place("inner.py", 2, 3), None)
    assert caught.value.location == "inner.py:2:3"


@pytest.mark.parametrize("place", [Place("/a/b.py", 3, 7), Place("C:\\b.py", 3)])
def test_texts_of_places(place: Place) -> None:
    assert Place.parse(str(place)) == place
    assert Place.of_debuginfo(place.debuginfo) == place


@pytest.mark.parametrize("text", ["", "a.py", "a.py:1", "a.py:b:c"])
def test_texts_of_no_place(text: str) -> None:
    assert Place.parse(text) is None


LABELS = {
    "m = x[src] W[etype]  [E]": [("E", 'e["m"] = linear(e.src["x"], W[e.etype])')],
    "m = x W[etype]  [U]": [("U", 'p["m"] = linear(p.src["x"], W[p.etype])')],
    "m = x[dst] · W[etype]ᵀ  [E]": [("E", 'e["m"] = dot_prd(e.dst["x"], W[e.etype].T)')],
    "out = Σ a * x[src] W[etype] over incoming edges  [ND]": [
        ("E", 'e.dst["out"] += e["a"] * linear(e.src["x"], W[e.etype])')
    ],
    "grad_W = Σ x[src] ⊗ m over rows of an edge type  [R]": [
        ("E", 'grad_W[e.etype] += outer_prod(e.src["x"], e["m"])')
    ],
    "att = 0.5 * leakyrelu(a + b, 0.2)  [E]": [("E", 'e["att"] = 0.5 * leakyrelu(e["a"] + e["b"], 0.2)')],
    "largest = max (a - b) over outgoing edges  [NS]": [
        ("E", 'e.src["largest"] = max(e.src["largest"], e["a"] - e["b"])')
    ],
    "y = x  [ND]": [("ND", 'n["y"] = n["x"]')],
    "y = 0  [ND]": [("ND", 'n["y"] = 0.0')],
    "y = (x - (b - 1)) / (-x)  [ND]": [("ND", 'n["y"] = (n["x"] - (b - 1.0)) / (-n["x"])')],
    "y = Σ (x > 0) * x over rows of a node  [NS]": [("U", 'p.src["y"] += (p["x"] > 0.0) * p["x"]')],
    "out: leakyrelu, softmax, sum  [ND]": [
        ("E", 'e["a"] = leakyrelu(e["s"], 0.2)'),
        ("E", 'e.dst["m"] = max(e.dst["m"], e["a"])'),
        ("E", 'e["p"] = exp(e["a"] - detach(e.dst["m"]))'),
        ("E", 'e.dst["t"] += e["p"]'),
        ("E", 'e["w"] = e["p"] / e.dst["t"]'),
        ("E", 'e.dst["other"] += e["w"] * e.src["g"]'),
        ("E", 'e.dst["out"] += e["w"] * e.src["h"]'),
    ],
}


@pytest.mark.parametrize("text", LABELS)
def test_labels(text: str) -> None:
    assert label([parse_statement(statement, space) for space, statement in LABELS[text]]) == text
