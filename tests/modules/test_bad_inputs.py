"""What a user can get wrong, and the sentence that says so: argument, offending value, remedy."""

from __future__ import annotations

import stat
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch

import dacergnn
from dacergnn import Config, HeteroGraph, datasets, explain, optimize, revert
from dacergnn.errors import (
    ArrayError,
    BuildError,
    CacheError,
    DacergnnError,
    DatasetError,
    GraphError,
    UnsupportedCallError,
    UnsupportedLayerError,
    UnsupportedMachineError,
)
from dacergnn.frontends.pyg.hgt import HGTFrontend
from dacergnn.modules import HGT, RGAT, RGCN
from dacergnn.modules.programs import compiled_program
from dacergnn.native import build
from dacergnn.native.cache import entries
from tests.frontends.graphs import dgl_graph
from tests.modules.layers import (
    EDGES,
    K,
    M,
    R,
    arguments,
    assert_close,
    compiled,
    features,
    hetero_graph,
    hgt,
    hgt_arguments,
    native,
    pyg,
    rgat,
    rgcn,
)

E, T, X, N = EDGES.edge_index, EDGES.edge_type, features(), EDGES.num_src
Act = Callable[[], object]
CPU = "but the graph is on cpu; move it with"
KERNELS = "but layers run on the CPU and on CUDA devices; move it with .to('cpu')"
COUNT = "indices count from 0, so remove padding and shift indices that start elsewhere."
INTEGERS = "indices must be int32 or int64, convert with .long()."


def call(layer: Any, *args: Any, **kwargs: Any) -> Act:
    return lambda: compiled(layer() if callable(layer) else layer)(*args, **kwargs)


def put(tensor: torch.Tensor, position: int, value: int) -> torch.Tensor:
    changed = tensor.clone()
    changed[..., position] = value
    return changed


def cannot(layer: str, reason: str) -> str:
    return f"{layer} cannot run this call, compiled or not: {reason}"


def dgl_call(layer: str, *change: Any) -> Act:
    def act() -> None:
        conv = pytest.importorskip("dgl.nn.pytorch", reason="dgl 1.1.3 needs Python 3.11")
        made = conv.RelGraphConv(K, M, R) if layer == "RelGraphConv" else conv.HGTConv(K, 4, 2, 3, R, dropout=0.0)
        compiled(made)(dgl_graph(EDGES), *change)

    return act


ROWS: list[tuple[str, Act, type[Exception], str]] = [
    # Features
    ("wide x", call(rgcn, X[:, :3], E, T), UnsupportedCallError,
     cannot("RGCNConv", "x is [15, 3]; it must be a tensor of shape [N, 6].")),
    ("flat x", call(rgat, X[:, 0], E, T), UnsupportedCallError,
     cannot("RGATConv", "x is [15]; it must be a tensor of shape [N, 6].")),
    ("x of NumPy", call(rgcn, X.numpy(), E, T), UnsupportedCallError,
     cannot("RGCNConv", "x is a ndarray; it must be a tensor, None or a pair.")),
    ("x in bfloat16", call(rgat, X.bfloat16(), E, T), ArrayError,
     "x has dtype torch.bfloat16, but the layer has torch.float32; use .to(torch.float32)."),
    ("x in float64", call(rgcn, X.double(), E, T), ArrayError,
     "x has dtype torch.float64, but the layer has torch.float32; use .to(torch.float32)."),
    ("x on another device", call(rgcn, X.to("meta"), E, T), ArrayError, f"x is on meta, {CPU} .cpu()."),
    ("layer in float8", call(lambda: rgcn().to(torch.float8_e5m2), X.to(torch.float8_e5m2), E, T), ArrayError,
     "the layer has dtype torch.float8_e5m2; compiled layers take torch.float32, torch.float64, torch.bfloat16 or "
     "torch.float16; convert it with .float()."),
    ("x of another type", call(hgt, {"t9": X, "t8": X[:, :5]}, hgt_arguments()[1]), UnsupportedCallError,
     cannot("HGTConv", "x_dict['t9'] is [15, 6]; it must be a tensor of shape [N, 8].")),
    ("an unknown node type", call(hgt, {"person": X}, hgt_arguments()[1]), UnsupportedCallError,
     cannot("HGTConv", "x_dict holds node type 'person', which the layer does not know.")),
    ("DGL features", dgl_call("RelGraphConv", X[1:], T), UnsupportedCallError,
     cannot("RelGraphConv", "feat is torch.float32 [14, 6]; it must be a floating-point tensor [15, 6].")),
    # Edges
    ("edge_index of floats", call(rgcn, X, E.float(), T), ArrayError,
     f"edge_index[0] has dtype torch.float32; {INTEGERS}"),
    ("edge_index with three rows", call(rgat, X, torch.cat([E, E[:1]]), T), UnsupportedCallError,
     cannot("RGATConv", "edge_index has shape [3, 50]; it must be [2, E].")),
    ("edge_index as a list", call(rgcn, X, [[0], [1]], T), UnsupportedCallError,
     cannot("RGCNConv", "edge_index is a list; compiled layers take dense tensors [2, E].")),
    ("edge_index on another device", call(rgcn, X, E.to("meta"), T), ArrayError,
     f"edge_index is on meta, {KERNELS}."),
    ("a negative source", call(rgcn, X, put(E, 7, -1), T), GraphError,
     f"edge_index[0] holds -1 at position 7; {COUNT}"),
    ("a source that is not there", call(rgat, X[:14], put(E, 7, 14), T), GraphError,
     "edge_index[0] holds 14 at position 7, but there are 14 source nodes; correct it or pass x of at least 15."),
    ("an index out of range within a type",
     call(hgt, hgt_arguments()[0], {("t9", "r2", "t9"): torch.tensor([[0], [9]])}), GraphError,
     "edge_index_dict[('t9', 'r2', 't9')][1] holds 9 at position 0, but there are 6 t9 nodes; correct it or pass"
     " x_dict of at least 10."),
    ("no edges of a known type", call(hgt, hgt_arguments()[0], {}), UnsupportedCallError,
     cannot("HGTConv", "x_dict or edge_index_dict is empty; pass at least one type in each.")),
    # Types
    ("no types", call(rgcn, X, E), UnsupportedCallError,
     cannot("RGCNConv", "edge_type is missing; pass one type for each edge as a tensor [E].")),
    ("types of floats", call(rgat, X, E, T.float()), UnsupportedCallError,
     "RGATConv cannot run this call, compiled or not: types of edges are of torch.float32; pass integers."),
    ("too few types", call(rgcn, X, E, T[1:]), ArrayError,
     "edge_type has 49 entries; it must have 50 (one type for each edge)."),
    ("types in two dimensions", call(rgcn, X, E, T[:, None]), ArrayError,
     "edge_type has shape [50, 1]; it must have one dimension."),
    ("a negative type", call(rgat, X, E, put(T, 3, -2)), GraphError, f"edge_type holds -2 at position 3; {COUNT}"),
    ("a type that is not there", call(rgcn, X, E, put(T, 3, 5)), GraphError,
     "edge_type holds 5 at position 3, but there are 5 relations in the layer; correct it or pass num_relations of at "
     "least 6."),
    ("types on another device", call(rgcn, X, E, T.to("meta")), ArrayError,
     "edge_type is on meta, the edge list on cpu; move it with .to('cpu')."),
    ("DGL types as a list", dgl_call("RelGraphConv", X, T.tolist()), UnsupportedCallError,
     cannot("RelGraphConv", "etypes must be a tensor with one type for each row.")),
    ("DGL node types out of range", dgl_call("HGTConv", X, torch.full((N,), 3), T), GraphError,
     "node_type holds 3 at position 0, but there are 3 node types; correct it or pass num_node_types of at least 4."),
    # Calls
    ("an argument too much", call(rgcn, X, E, T, alpha=1), TypeError,
     "RGCNConv.forward() got an unexpected keyword argument 'alpha'"),
    ("edge features of another width", call(lambda: rgat(edge_dim=3), X, E, T, torch.ones(50, 2)),
     UnsupportedCallError, cannot("RGATConv", "edge_attr is [50, 2]; it must be a tensor of shape [N, 3].")),
    ("too few edge features", call(lambda: rgat(edge_dim=3), X, E, T, torch.ones(49, 3)), ArrayError,
     "values has shape [49, 3]; it must have 50 rows."),
    ("saving before a call", lambda: compiled(rgcn()).save_sdfg("sdfg"), UnsupportedCallError,
     "save_sdfg: this RGCNConv has not been called yet; call it once before. Models that run as one have a save_sdfg "
     "for all of their layers."),
    # Native layers
    ("an edge_index for a graph", lambda: native("RGCN")(X, E), ArrayError,
     "graph is a Tensor; make a HeteroGraph of it with from_pyg, from_dgl or from_arrays."),
    ("a graph on another device", lambda: native("RGCN")(X, hetero_graph().to("meta")), ArrayError,
     f"graph is on meta, {KERNELS}."),
    ("too few rows", lambda: native("RGAT")(X[1:], hetero_graph()), ArrayError,
     "x has shape (14, 6), but the graph and the layer ask for (15, 6)."),
    ("too few relations", lambda: RGCN(K, M, 2)(X, hetero_graph()), ArrayError,
     "W has shape (2, 6, 8), but the graph and the layer ask for (5, 6, 8)."),
    ("too few node types", lambda: HGT(K, 2, R)(X, hetero_graph()), ArrayError,
     "W_k has shape (2, 6, 6), but the graph and the layer ask for (4, 6, 6)."),
    ("no features", lambda: RGAT(K, M, R)(None, hetero_graph()), ArrayError,  # type: ignore[arg-type]
     "x is a NoneType; it must be a tensor with a row for each source node."),
    ("heads that do not divide", lambda: HGT(6, 2, R, heads=4), UnsupportedLayerError,
     "heads=4 of HGT is not supported; use a divisor of channels=6."),
    ("an unknown aggregation", lambda: RGCN(K, M, R, aggr="median"), UnsupportedLayerError,
     'aggr=\'median\' of RGCN is not supported; use "mean" or "add".'),
    # Options of layers that no program expresses
    ("decomposed layers", lambda: optimize(rgcn(decomposed_layers=2), on_unsupported="error"), UnsupportedLayerError,
     "decomposed_layers=2 of RGCNConv is not supported; leave it at 1; nothing is gained from it."),
    ("lazy channels", lambda: HGTFrontend(pyg().HGTConv(-1, M, (["a"], [("a", "r", "a")]))), UnsupportedLayerError,
     "in_channels=-1 of HGTConv is not supported; run the model once before it is optimized."),
    # Entry points
    ("no module", lambda: optimize("model"), DacergnnError,  # type: ignore[arg-type]
     "model is a str; pass a torch.nn.Module."),
    ("explain no module", lambda: explain(None), DacergnnError,  # type: ignore[arg-type]
     "model is a NoneType; pass a torch.nn.Module."),
    ("revert no module", lambda: revert(X), DacergnnError,  # type: ignore[arg-type]
     "model is a Tensor; pass a torch.nn.Module."),
    ("no graph", lambda: optimize(rgcn(), E), DacergnnError,  # type: ignore[arg-type]
     "graph is a Tensor; make a HeteroGraph of it with from_pyg, from_dgl or from_arrays."),
    ("no config", lambda: optimize(rgcn(), config={"passes": ()}), DacergnnError,  # type: ignore[arg-type]
     "config is a dict; pass a dacergnn.Config."),
    ("no filter", lambda: optimize(rgcn(), filter_fn="conv"), DacergnnError,  # type: ignore[arg-type]
     "filter_fn is a str; pass a function of a module and its name."),
    ("what to do", lambda: optimize(rgcn(), on_unsupported="raise"), DacergnnError,  # type: ignore[arg-type]
     'on_unsupported=\'raise\' is not one of "warn", "error", "ignore".'),
    ("an unknown pass", lambda: Config(passes=("fuse",)), DacergnnError,
     f"passes=('fuse',): there is no pass 'fuse'; passes: {', '.join(dacergnn.config.PASSES)}."),
    ("a string of passes", lambda: Config(passes="fuse"), DacergnnError,  # type: ignore[arg-type]
     "passes='fuse' is a string; pass a tuple of names, as in ('fuse',)."),
    ("an unknown implementation", lambda: Config(implementation="gpu"), DacergnnError,
     "implementation='gpu' is not one of cpu, cuda, cpu-scalar, pure."),
    ("an unknown dataset", lambda: datasets.load("karate"), DatasetError,
     f"There is no dataset 'karate'; known are {', '.join(datasets.NAMES)}, and synthetic ones as name~scale for"
     f" {', '.join(datasets.SYNTHETIC_NAMES)}."),
    ("a graph from NumPy floats",
     lambda: HeteroGraph.from_arrays((np.zeros(1), np.zeros(1, "int64")), None, num_nodes=1), ArrayError,
     "src has dtype float64; indices must be int32 or int64, convert with .astype('int64')."),
    ("a graph with more destinations", lambda: HeteroGraph.from_arrays(E, T, num_nodes=(15, 20)), GraphError,
     "num_nodes is (15, 20): destinations must be the first of the sources, so there cannot be more of them; pass"
     " bipartite=True if sources and destinations are different nodes."),
]  # fmt: skip


@pytest.mark.compiled
@pytest.mark.parametrize(("act", "kind", "message"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_message(act: Act, kind: type[Exception], message: str) -> None:
    pyg()
    with pytest.raises(kind) as caught:
        act()
    assert str(caught.value) == message


def test_errors_of_one_call_leave_the_layer_usable() -> None:
    layer = compiled(rgcn())
    expected = layer(X, E, T)
    for args in ((X[:, :3], E, T), (X, put(E, 0, -1), T), (X.double(), E, T), (X, E, T[1:])):
        with pytest.raises(DacergnnError):
            layer(*args)
    assert torch.equal(layer(X, E, T), expected)


# Compiler and cache -----------------------------------------------------------------------------------------


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty build cache, and no programs in memory."""
    monkeypatch.setenv("DACERGNN_CACHE_DIR", str(tmp_path / "cache"))
    compiled_program.cache_clear()
    return tmp_path / "cache"


@pytest.fixture
def forget_compiler() -> Any:
    """The compiler is looked for once; here again before and after."""
    known = (build.compiler, build._environment)  # pyright: ignore[reportPrivateUsage]
    for function in known:
        function.cache_clear()
    yield
    for function in known:
        function.cache_clear()


@pytest.mark.usefixtures("fresh_cache", "forget_compiler")
def test_the_original_is_not_run_for_the_class_of_an_error() -> None:
    """Another run would write to buffers, draw random numbers and hold all messages."""
    layer, ran = compiled(rgcn()), []

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and "torch_geometric" in frame.f_code.co_filename:
            ran.append(frame.f_code.co_qualname)

    for kind in (GraphError, RuntimeError, IndexError, KeyError, TypeError, ValueError, AssertionError):
        sys.setprofile(note)
        try:
            with pytest.raises(kind, match="but there are"):
                layer(X, E + N, T)
        finally:
            sys.setprofile(None)
    assert not {name for name in ran if name.endswith((".forward", ".propagate", ".message"))}


def test_no_compiler_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(UnsupportedMachineError) as caught:
        dacergnn.optimize(rgcn(), on_unsupported="error")(*arguments())
    assert str(caught.value) == (
        'The C++ compiler "g++" is not on PATH; install g++ (11 or newer), or set CXX to a C++ compiler.'
    )


@pytest.mark.usefixtures("fresh_cache", "forget_compiler")
def test_unknown_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(UnsupportedMachineError, match=r'^The C\+\+ compiler "no-such-compiler" is not on PATH;'):
        dacergnn.optimize(rgcn(), on_unsupported="error")(*arguments())


@pytest.mark.compiled
def test_flags_that_the_compiler_rejects(fresh_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXXFLAGS", "-O1 -fno-such-flag")
    with pytest.raises(BuildError, match=r"rejected generated code .*\n.*-fno-such-flag"):
        compiled(rgcn())(*arguments())
    assert entries() == []
    assert (fresh_cache / "failed.cpp").is_file()


@pytest.mark.compiled
@pytest.mark.usefixtures("fresh_cache")
def test_cache_folder_that_is_a_file(fresh_cache: Path) -> None:
    fresh_cache.write_text("")
    with pytest.raises(CacheError) as caught:
        compiled(rgcn())(*arguments())
    assert str(caught.value) == (
        f"The build cache {fresh_cache} cannot be written (File exists); set DACERGNN_CACHE_DIR to a folder that can."
    )


def test_cache_folder_without_permission(fresh_cache: Path) -> None:
    fresh_cache.mkdir()
    fresh_cache.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        (fresh_cache / "probe").touch()
    except PermissionError:
        with pytest.raises(CacheError, match=r"cannot be written \(Permission denied\); set DACERGNN_CACHE_DIR"):
            compiled(rgcn())(*arguments())
    else:
        pytest.skip("this user may write everywhere")
    finally:
        fresh_cache.chmod(stat.S_IRWXU)


def programs() -> list[Any]:
    """Entries of the cache without the package's own libraries, which the first test of a process builds."""
    return [entry for entry in entries() if entry.name == "rgcn"]


@pytest.mark.compiled
def test_damaged_cache_entries_are_built_again(fresh_cache: Path) -> None:
    original, args = rgcn(), arguments()
    with torch.no_grad():
        expected = compiled(original)(*args)
    for damage in ("library", "record", "no library", "no record", "other record"):
        (entry,) = programs()
        library, record = entry.path / "program.so", entry.path / "entry.json"
        if damage == "library":
            # In place of the file, not into it: this process runs it.
            content = library.read_bytes()
            library.unlink()
            library.write_bytes(content[: len(content) // 2])
        elif damage == "no library":
            library.unlink()
        elif damage == "no record":
            record.unlink()
        else:
            record.write_text("{" if damage == "record" else "[]")
        compiled_program.cache_clear()
        with torch.no_grad():
            assert_close(compiled(original)(*args), expected)
        (again,) = programs()
        assert again.path.parent == fresh_cache, damage
        assert library.stat().st_size > 10_000, damage
