"""SDFGs that a layer refuses to load: changes that do not fit, and folders that are not what was saved."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree
from typing import Any

import dace
import pytest
from torch import Tensor

import dacergnn
from dacergnn.errors import UnsupportedCallError, VerificationError
from dacergnn.modules.sdfg_files import RECORD
from dacergnn.runtime import plan_cache
from dacergnn.target import find
from tests.modules.layers import (
    K,
    M,
    R,
    arguments,
    assert_close,
    pyg,
    rgat,
    rgcn,
)
from tests.modules.loaded_sdfgs import PLAIN, Change, change, loaded, optimized, variant_of


def attribute(label: str, name: str, value: object) -> Change:
    def edit(_: object, operators: dict[str, Any]) -> None:
        setattr(operators[label], name, value)

    return edit


def renamed(sdfg: dace.SDFG, _: object) -> None:
    sdfg.name = "other"


def narrower(sdfg: dace.SDFG, operators: dict[str, Any]) -> None:
    sdfg.arrays["bias"].set_shape([1, 1])


def other_rows(sdfg: dace.SDFG, operators: dict[str, Any]) -> None:
    sdfg.arrays["tmp"].set_shape([dace.symbol("U"), 1])


def doubles(sdfg: dace.SDFG, operators: dict[str, Any]) -> None:
    sdfg.arrays["q"].dtype = dace.float64


def another_order(sdfg: dace.SDFG, operators: dict[str, Any]) -> None:
    first, second, *others = sdfg.arg_names
    sdfg.arg_names = [second, first, *others]


def nothing_returned(sdfg: dace.SDFG, operators: dict[str, Any]) -> None:
    sdfg.arg_names = [n for n in sdfg.arg_names if n != "out_1"]


def not_saved(sdfg: dace.SDFG, operators: dict[str, Any]) -> None:
    sdfg.arg_names = [n for n in sdfg.arg_names if n != "att_2"]


def a_tasklet(sdfg: dace.SDFG, operators: dict[str, Any]) -> None:
    next(iter(sdfg.states())).add_tasklet("own", {}, {}, "")


def two_states(sdfg: dace.SDFG, operators: dict[str, Any]) -> None:
    sdfg.add_state_after(next(iter(sdfg.states())), "second")


CHANGES: list[tuple[Change, str]] = [
    (attribute("att", "body", ["e['att'] = "]), "the body of att: \"e['att'] = \" over E is no statement: "),
    (attribute("att", "body", ['e["att"] = e.nowhere["tmp"]']), "is no statement: "),
    (attribute("att", "spaces", ["E", "E"]), "att has 1 statements over 2 row spaces; give one for each."),
    (
        attribute("att", "spaces", ["X"]),
        "att runs under E, and its one statement over X; give space and ",
    ),
    (attribute("att", "body", ['e["att"] = e["nobody"]']), 'I5: "nobody" is read by att before anything writes it'),
    (attribute("att", "body", ['e["att"] = e.dst["tmp"]']), 'I6: "tmp" has rows E, but E.dst leads to ND'),
    (attribute("att", "body", ['e["att"] = e["out_1"]']), "I5: "),
    (attribute("att", "body", ['e["tmp"] = e["tmp_1"]']), 'I4: "tmp" is written by two operators'),
    (attribute("att", "body", []), "att has no statement; delete the node."),
    (attribute("tmp", "body", ['e["tmp"] = e["ht"]']), "I7: "),
    (attribute("largest", "adjacency", "csc"), '"largest" cannot be answered with'),
    (attribute("att", "adjacency", "ell"), 'adjacency of att is "ell", which does not fit; set it to "csr".'),
    (attribute("att", "implementation", "pure"), 'implementation of att is "pure", and that of the layer "TARGET"; '),
    (attribute("out", "tile_rows", 1 << 70), "tile_rows is 1180591620717411303424; set it to an integer of 64 bits"),
    (renamed, 'the SDFG is called "other", and the one of this program "rgat".'),
    (narrower, '"bias" has rows ONE of shape (1,), but rows ONE of shape (1, 4) in the layer\'s program; keep them.'),
    (other_rows, 'I6: "tmp" has rows U'),
    (doubles, '"q" has elements of float64; all arrays of this program have float32.'),
    (another_order, "the inputs are W, x, q, k, bias, and those of the layer's program x, W, q, k, bias; keep names"),
    (nothing_returned, "the outputs are hs, and those of the layer's program out_1; keep names and order."),
    (not_saved, 'it reads "att_2", which the layer does not take and'),
    (a_tasklet, "I2: "),
    (two_states, "I1: "),
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Tensor, Path]:
    """A layer, its result, and a folder with its SDFGs, which nobody changes."""
    layer, folder = optimized(), tmp_path_factory.mktemp("saved")
    layer.save_sdfg(folder)
    return layer, layer(*arguments()).detach(), folder


@pytest.mark.parametrize(("edit", "problem"), CHANGES, ids=[text for _, text in CHANGES])
def test_changes_that_are_refused(edit: Change, problem: str, saved: tuple[Any, Tensor, Path], tmp_path: Path) -> None:
    layer, expected, folder = saved
    copytree(folder, tmp_path, dirs_exist_ok=True)
    path = change(tmp_path, edit)
    with pytest.raises(VerificationError) as error:
        layer.load_sdfg(tmp_path)
    assert str(error.value).startswith(str(path).replace(".sdfg", ""))
    assert problem.replace("TARGET", find(None).name) in str(error.value)
    assert_close(layer(*arguments()), expected)


def changed_node(path: Path, **attributes: object) -> None:
    """Writes attributes of the node of ``out`` into a file, as an editor does."""
    sdfg = json.loads(path.read_text())
    (node,) = [
        n for n in sdfg["nodes"][0]["nodes"] if (n["type"], n["attributes"].get("name")) == ("LibraryNode", "out")
    ]
    node["attributes"] |= attributes
    path.write_text(json.dumps(sdfg))


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("schedule_by", "rows", "Value rows not present in choices: ['groups', 'edges']"),
        ("tile_rows", "many", "tile_rows is many; set it to an integer of 64 bits"),
        ("tilerows", 64, "Unused properties: tilerows"),
        ("chunks", None, "None not allowed for property chunks"),
        ("body", "", "is no program of dacergnn"),
    ],
)
def test_values_that_dace_would_leave_out(
    name: str, value: object, problem: str, saved: tuple[Any, Tensor, Path], tmp_path: Path
) -> None:
    layer, _, folder = saved
    copytree(folder, tmp_path, dirs_exist_ok=True)
    (forward,) = tmp_path.glob("*_select_adjacency.sdfg")
    changed_node(forward, **{name: value})
    with pytest.raises(VerificationError) as error:
        layer.load_sdfg(tmp_path)
    assert problem in str(error.value)


def test_values_and_places_of_nodes_that_an_editor_writes(tmp_path: Path) -> None:
    layer, place = optimized(), {"dx": 3, "dy": 4}
    *_, forward, _ = layer.save_sdfg(tmp_path)
    changed_node(forward, position=place, tile_rows="64", body=['e.dst["out"] += e["att_2"] * e["hs"]'])
    sdfg = json.loads(forward.read_text())
    sdfg["attributes"]["layout"] = place
    forward.write_text(json.dumps(sdfg))
    layer.load_sdfg(tmp_path)
    assert variant_of(layer).forward.lowered.schedule["out/tile_rows"] == 64


def test_files_that_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = optimized()
    with pytest.raises(VerificationError, match=rf"{RECORD}: it cannot be read \(No such file or directory\); name a"):
        layer.load_sdfg(tmp_path / "nowhere")
    *_, first, last, backward = layer.save_sdfg(tmp_path)
    for text in ("{", "[]", "{}", '{"parts": {}}'):
        kept = (tmp_path / RECORD).read_text()
        (tmp_path / RECORD).write_text(text)
        with pytest.raises(VerificationError, match="it is not what save_sdfg wrote; save the SDFGs again"):
            layer.load_sdfg(tmp_path)
        (tmp_path / RECORD).write_text(kept)
    for path, text, problem in (
        (backward, None, "the file is missing; save the SDFGs again"),
        (last, None, "the file is missing"),
        (last, "{", "it is no program of dacergnn: JSONDecodeError"),
        (last, backward.read_text(), 'the SDFG is called "rgat_backward", and the one of this program "rgat"'),
        (first, first.read_text() + " ", f"shows a step on the way; change what runs: {last.name}, {backward.name}"),
    ):
        before = path.read_text()
        path.unlink() if text is None else path.write_text(text)
        with pytest.raises(VerificationError, match=problem) as error:
            layer.load_sdfg(tmp_path)
        assert str(error.value).startswith(f"{path}: ")
        path.write_text(before)
    with monkeypatch.context() as other:
        other.setattr(plan_cache, "_VERSIONS", "other")
        with pytest.raises(VerificationError, match="saved by another version of dacergnn or DaCe; save them again"):
            layer.load_sdfg(tmp_path)
    with pytest.raises(
        VerificationError, match="not of a program that this RGCNConv has run; load what this layer has"
    ):
        optimized(rgcn()).load_sdfg(tmp_path)
    wide = dacergnn.optimize(pyg().RGATConv(K, M, R), config=PLAIN)
    wide(*arguments())
    with pytest.raises(VerificationError, match="not of a program that this RGATConv has run"):
        wide.load_sdfg(tmp_path)  # pyright: ignore[reportCallIssue]
    with pytest.raises(UnsupportedCallError, match="load_sdfg: this RGATConv has not been called yet"):
        dacergnn.optimize(rgat()).load_sdfg(tmp_path)  # pyright: ignore[reportCallIssue]
    layer.load_sdfg(tmp_path)


def test_a_folder_that_is_used_again(tmp_path: Path) -> None:
    layer = optimized()
    first = layer.save_sdfg(tmp_path)
    loaded(layer, tmp_path)
    changed = first[-2]
    written = layer.save_sdfg(tmp_path)
    assert sorted(tmp_path.glob("*.sdfg")) == sorted([*written, changed])  # nobody's changes are removed
    with pytest.raises(
        VerificationError, match=f"{changed.name}: the file is none that was saved last; remove it, and"
    ):
        layer.load_sdfg(tmp_path)
    changed.unlink()
    expected = layer(*arguments())
    assert layer.load_sdfg(tmp_path) == written
    assert_close(layer(*arguments()), expected)


def test_the_record_says_what_runs(tmp_path: Path) -> None:
    *_, forward, backward = optimized().save_sdfg(tmp_path)
    record = json.loads((tmp_path / RECORD).read_text())
    assert {role: part["file"] for role, part in record["parts"].items()} == {
        "forward": forward.name, "backward": backward.name,
    }  # fmt: skip
    assert record["gradients"] == ["x", "W", "q", "k", "bias"]
