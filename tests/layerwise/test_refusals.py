"""What is refused, and in which words."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dacergnn
from dacergnn.errors import ArrayError, DacergnnError, GraphError, UnsupportedCallError, UnsupportedLayerError
from tests.layerwise.samples import E, K, M, N, R, draw, drawn, edge_types, edges, pyg

Make = Callable[[], Any]


def sage() -> Any:
    return drawn(pyg().SAGEConv(K, M))


ROWS: dict[str, Make] = {
    "GraphNorm": lambda: drawn(pyg().GraphNorm(M)),
    "PairNorm": lambda: drawn(pyg().PairNorm()),
    "softmax over nodes": lambda: lambda rows: rows.softmax(0),
    "dropout": lambda: F.dropout,
    "batch statistics": lambda: lambda rows: F.batch_norm(rows, None, None, training=True),
}


def test_a_layer_that_torch_does_not_capture_and_that_looks_farther() -> None:
    def twice(x: Tensor, edge_index: Tensor) -> Tensor:
        src, dst = edge_index
        if src.max() < 0:  # a number that torch does not know
            return x
        for _ in range(2):
            x = torch.zeros_like(x).index_add(0, dst, x[src])
        return x

    words = r"^twice cannot be computed range by range: .* in a list\..* torch does not capture the model whole: "
    with pytest.raises(UnsupportedCallError, match=words):
        dacergnn.inference(twice, edges(), draw(N, K), batch=4)


@pytest.mark.parametrize("name", ROWS)
def test_functions_over_all_rows(name: str) -> None:
    with pytest.raises(UnsupportedCallError, match=r"^SAGEConv, \S+ cannot be computed range by range"):
        dacergnn.inference([sage(), ROWS[name]()], edges(), draw(N, K), batch=4)


PLACES = {
    "first row": lambda: lambda rows: rows + rows[0],
    "running sum": lambda: lambda rows: rows.cumsum(0),
    "sorted": lambda: lambda rows: rows.sort(0).values,
}


@pytest.mark.parametrize("name", PLACES)
def test_functions_of_places(name: str) -> None:
    with pytest.raises(UnsupportedCallError, match="cannot be computed range by range"):
        dacergnn.inference([sage(), PLACES[name]()], edges(), draw(N, K), batch=4)


def test_a_refused_first_range_is_not_written() -> None:
    out = torch.zeros(N, M)
    with pytest.raises(UnsupportedCallError):
        dacergnn.inference([sage(), lambda rows: rows.cumsum(0)], edges(), draw(N, K), batch=4, out=out)
    assert not out.any()


class Both(nn.Module):
    def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        return x, x


MODELS: list[tuple[str, Make, str]] = [
    ("training", lambda: sage().train(), "training=True of SAGEConv is not supported; call eval() on the model"),
    ("part in training", lambda: [sage(), nn.BatchNorm1d(M)], "training=True of BatchNorm1d is not supported; call"),
    ("nothing", list, "model=[] is not supported; give it one step at least."),
    ("text", lambda: [sage(), "relu"], "model='relu' is not supported; give a layer, a function of rows, or a list"),
    ("two results", lambda: Both().eval(), "result='tuple' of Both is not supported; give steps that return one"),
    ("one row", lambda: [sage(), lambda rows: rows.sum(0)], "shape of the result=[8] of SAGEConv, <lambda> is not"),
]


@pytest.mark.parametrize(("make", "words"), [m[1:] for m in MODELS], ids=[m[0] for m in MODELS])
def test_models(make: Make, words: str) -> None:
    with pytest.raises(UnsupportedLayerError, match="^" + re.escape(words)):
        dacergnn.inference(make(), edges(), draw(N, K), batch=4)


def test_an_array_that_a_sequential_takes_by_position() -> None:
    model = pyg().Sequential("x, edge_index, kinds", [(pyg().RGCNConv(K, M, R), "x, edge_index, kinds -> x")]).eval()
    with pytest.raises(UnsupportedCallError, match=r"^Sequential .*: a call with a few rows ends with \w+: .*kinds"):
        dacergnn.inference(model, edges(), draw(N, K))


def test_hooks_of_a_container() -> None:
    model = nn.Sequential(sage(), nn.ReLU()).eval()
    model.register_forward_hook(lambda module, args, result: result * 2)
    with pytest.raises(UnsupportedLayerError, match=r"^hooks=True of Sequential is not supported; put hooks on its"):
        dacergnn.inference(model, edges(), draw(N, K))


ARGUMENTS: list[tuple[str, type[DacergnnError], dict[str, Any], str]] = [
    ("batch-0", ArrayError, {"batch": 0}, "batch is 0; give the number of destinations in a range, 1 or more."),
    ("batch-float", ArrayError, {"batch": 2.0}, "batch is 2.0; give the number"),
    ("batch-bool", ArrayError, {"batch": True}, "batch is True; give the number"),
    ("x-list", ArrayError, {"x": [1.0]}, "x is a list; give a tensor or a NumPy array, which may lie in a file."),
    ("x-sparse", ArrayError, {"x": draw(N, K).to_sparse()}, "x is a torch.sparse_coo tensor; give a dense one."),
    ("x-number", ArrayError, {"x": torch.tensor(1.0)}, "x is a single number; give an array with a row for each"),
    ("x-text", ArrayError, {"x": np.array(["a"])}, "x has elements of type <U1, which torch does not have."),
    ("x-dict", ArrayError, {"x": {"a": draw(N, K)}}, "x is a dict, and graph is not a dictionary; give dictionaries"),
    ("graph-dict", ArrayError, {"graph": {("a", "r", "a"): edges()}}, "x is a Tensor, and graph is a dictionary; "),
    ("graph-array", ArrayError, {"graph": edges().numpy()}, "graph is a ndarray; give a dense tensor [2, E] of"),
    ("graph-sparse", ArrayError, {"graph": torch.eye(N).to_sparse()}, "graph is a torch.sparse_coo tensor; give a"),
    ("graph-shape", ArrayError, {"graph": edges().T}, f"graph is torch.int64 [{E}, 2]; give integers [2, E]."),
    ("graph-float", ArrayError, {"graph": edges().float()}, f"graph is torch.float32 [2, {E}]; give integers"),
    ("graph-range", GraphError, {"x": draw(20, K)}, "graph lie between 0 and 24, but there are 20 rows of x."),
    ("graph-negative", GraphError, {"graph": edges() - 1}, "graph lie between -1 and 23, but there are 30 rows of x."),
    ("array-size", ArrayError, {"edge_weight": draw(3)}, "edge_weight has 3 rows; give one for each of the 30 nodes"),
    ("array-list", ArrayError, {"edge_weight": [1.0]}, "edge_weight is a list; give a tensor or a NumPy array"),
    ("array-taken", ArrayError, {"edge_type": edge_types()}, "edge_type is taken by none of the layers GraphConv."),
    ("out-shape", ArrayError, {"out": torch.empty(N, 3)},
     f"out is torch.float32 [{N}, 3], but the results are torch.float32 [{N}, {M}]."),
    ("x-byte-order", ArrayError, {"x": np.zeros((N, K), ">f4")}, "x has elements of type >f4, which torch does not"),
    ("graph-and-array", ArrayError, {"graph": [[0], [1]], "edge_weight": draw(1)}, "graph is a list; give a dense"),
    ("out-number", ArrayError, {"out": 5}, "out is a int; give an array, or the path of a .npy file."),
    ("out-read-only", ArrayError, {"out": np.broadcast_to(np.float32(0), (N, M))},
     "out is an array that cannot be written to; give another, or a path."),
    ("out-dict", ArrayError, {"out": {"a": "out.npy"}}, "out is a dictionary, and the model returns a tensor; give"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "given", "words"), [a[1:] for a in ARGUMENTS], ids=[a[0] for a in ARGUMENTS])
def test_arguments(kind: type[DacergnnError], given: dict[str, Any], words: str) -> None:
    call = {"graph": edges(), "x": draw(N, K), **given}
    with pytest.raises(kind, match="^" + re.escape(words)):
        dacergnn.inference(drawn(pyg().GraphConv(K, M)), **call)


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.numpy(), lambda x: x[1:]], ids=["same", "array", "part"])
def test_results_in_the_memory_of_features(view: Callable[[Tensor], Any]) -> None:
    x = draw(N, K)
    with pytest.raises(ArrayError, match=r"^out lies in the memory of x, which is read until the end; give another"):
        dacergnn.inference(drawn(pyg().GraphConv(K, K)), edges(), x, out=view(x))


def test_a_file_of_a_type_that_numpy_lacks(tmp_path: Any) -> None:
    with pytest.raises(ArrayError, match=r"^out cannot be a \.npy file of torch\.bfloat16; give a tensor\."):
        dacergnn.inference(lambda rows: rows.bfloat16(), edges(), draw(N, K), out=tmp_path / "out.npy")


KEYS = [("a", "to", "b"), ("b", "to", "b")]
TYPED: list[tuple[str, dict[str, Any], str]] = [
    ("no features", {"x": {"b": draw(N, K)}}, "graph has edges ('a', 'to', 'b'), but x has no features of type 'a'"),
    ("key of one text", {"graph": {"a__to__b": edges()}}, "graph has the key 'a__to__b'; give (source type, relation,"),
    ("key without a name", {"graph": {("", "", "b"): edges()}}, "graph has the key ('', '', 'b'); give (source type"),
    ("out of no type", {"out": {"c": torch.empty(N, M)}}, "out has a target for 'c', a type that the model gives"),
    ("out of no results", {"out": {"a": torch.empty(N, M)}}, "out has a target for 'a', a type that the model gives"),
    ("out of no dictionary", {"out": torch.empty(N, M)}, "out is a Tensor, and the model returns a dictionary; give"),
    ("array of no relation", {"edge_weight_dict": {("a", "by", "b"): draw(E)}},
     "edge_weight_dict[('a', 'by', 'b')] is of a relation or node type that graph does not have."),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:There exist node types:UserWarning")
@pytest.mark.parametrize(("given", "words"), [t[1:] for t in TYPED], ids=[t[0] for t in TYPED])
def test_typed_arguments(given: dict[str, Any], words: str) -> None:
    layer = drawn(pyg().HeteroConv({key: pyg().GraphConv((K, K), M) for key in KEYS}))
    call: dict[str, Any] = {"graph": {key: edges() for key in KEYS}, "x": {"a": draw(N, K), "b": draw(N, K)}, **given}
    with pytest.raises(ArrayError, match="^" + re.escape(words)):
        dacergnn.inference(layer, **call)


@pytest.mark.filterwarnings("ignore:There exist node types:UserWarning")
def test_a_type_that_a_layer_drops() -> None:
    layers = [drawn(pyg().HeteroConv({key: pyg().GraphConv((K, K), K) for key in KEYS})) for _ in range(2)]
    x = {"a": draw(N, K), "b": draw(N, K)}
    words = r"^HeteroConv, HeteroConv cannot be computed range by range: a call with a few rows ends with \w+Error: "
    with pytest.raises(UnsupportedCallError, match=words):
        dacergnn.inference(layers, {key: edges() for key in KEYS}, x)
