"""Makes compatibility.md: what may be done to a compiled layer, and for which kinds of layers that is tested.

    python docs/make_compatibility.py [--print]

The rows of its tables are the kinds of layers in `tests/compatibility/kinds.py`, the columns the tests beside it, which
are collected and not run. A test that no line of `compatibility_topics.py` is about is an error. With ``--print`` the
page is printed, and nothing is written.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Any

import pytest
from compatibility_topics import TOPICS
from pages import FOLDER, give

ROOT = FOLDER.parent
TESTS = ROOT / "tests" / "compatibility"


HEAD = """# Compatibility

A compiled layer is its original in everything but speed. What torch, PyG or a user does to a module has the effect on
it that it has on the original; where no program can have that effect, the original runs, with a warning that says why.

- **What it is.** An instance of the original's class, whose attributes are the original's own: `optimize` copies no
  layer. Parameters, buffers, options, hooks and parts that are set on the compiled layer or on the original are those
  of both, and count at the next call. Modules that hold layers are copied as `copy.copy` does it; an attribute that is
  set on such a copy is one of the copy alone.
- **Copies.** `copy.copy`, `copy.deepcopy` and `pickle` give compiled layers; a deep copy has parameters of its own.
  `revert` gives the originals back, the same objects. `optimize` leaves layers that are compiled as they are.
- **Uncompiled calls.** With `on_unsupported="warn"` each reason is said once, with "error" such a call raises
  `UnsupportedCallError`, with "ignore" it runs silently. `explain` shows the last reason.
- **Machines without kernels.** Without a compiler, on Windows, with torch for ROCm, and on a device or with a driver
  that kernels are not for, the originals run and a warning says why. With "error" such a call raises
  `UnsupportedMachineError`. Modules of this package have no original and raise it, too.
- **Lazy layers.** The first call of a layer with channels of -1 runs the original, which gives parameters their shapes;
  later ones are compiled.
- **`torch.compile`** holds a call as one operator. It finds its layer in the process that made the program, as long as
  that layer lives; elsewhere it is an error, never the values of another layer.
- **`torch.export`** writes a call as operations of torch and an operator that carries the compiled program, so that
  other processes run it ([deployment](deployment.md)).
- **`torch.jit.trace` and `script`** take the original. So do calls under `FakeTensorMode`, whose tensors hold no
  numbers, with a warning.
- **Children of `fork`** run on one thread, and the log says so: they have none of their parent's threads.
- **Methods.** A method that is replaced counts, whether on the layer, in its class or in a base of it, before
  `optimize` or afterwards; the layer is then recorded, or the original runs. A `forward` that is set on a compiled
  layer runs around the compiled one.
- **A forward's own Python** keeps its meaning where a forward is recorded: in layers without a front end, and over DGL
  graphs. Values that are computed under `no_grad`, `set_grad_enabled(False)` or `inference_mode`, or are detached, have
  no gradients, and reading them changes nothing. Each `torch.autograd.Function` runs as it is, on tensors. Hooks,
  `retain_grad` and `torch.autograd.grad` see tensors. Strides and identities of arguments are the user's.
  A forward runs as the original, with a warning, if it
  - turns gradients or autocast on, or transforms functions by `torch.func`, within itself;
  - applies a `Function` to values per edge, or asks for a gradient of a value that others were computed from before;
  - reads strides of what a program computes, calls `id`, compares types of tensors, or compares arguments by `is` with
    what the layer holds;
  - writes to edges, buffers, its own tensors or arrays that were read before, or to memory that several tensors share.
    A write by `.data` or an array to an argument, or to a tensor of its own, of more than 64 KiB is not noticed.

  What it has changed before it gives way to the original is given back: attributes, lists, dictionaries and sets that
  the layer or its code leads to, tensors and arrays in them, small arguments, hooks of arguments, and the state of
  random numbers.
- **Parts of a model** (`model.act`, `model.convs[0]`) mean by themselves what they mean in the original.
- **Graphs that change** have a page of their own: [graphs.md](graphs.md).

- **`torch.package`** takes compiled layers once it is told `extern("dacergnn.**")`: they need this package.

Calls that are replayed as CUDA graphs (`Config(cuda_graph=True)`) do less: they have first derivatives only, for more
torch raises an error.

The tables below are made by `docs/make_compatibility.py` from `tests/compatibility`, which runs one layer of every kind
in float64, beside its original where there is one: `compile-...` and `own...` are modules of this package. "yes" means
tested; "(yes)" tested where the layer has such a thing, a bias or a Linear, say; "-" not tested, mostly since there is
nothing that could be done.
"""

DIFFERENCES = """
## Where values differ

A compiled layer computes what its layer means, also where a library computes something else. There
`tests/compatibility/test_differences.py` shows both.

- **Equal maxima** share the gradient. So do those of PyG, which count the zeros that their result starts from as one
  more: where the maximum is 0, a share is lost. DGL gives all of the gradient to one of them.
- **Maxima over no edges** have no gradient. In DGL, the gradient of a relation without edges reaches node 0.
- **Maxima of missing values** are missing, NaN, as those of torch and PyG. DGL's leave NaN out.
- **HGTConv** means the same in whatever order its dictionaries are. With PyG 2.8, results depend on the order of the
  edge types in `edge_index_dict`, which should be the order that the layer was made with.
- **Edges of 32 bits** have the gradients of edges of 64 bits. With torch's own functions, those of many of PyG's layers
  are wrong.
"""

PEERS = """
## The libraries' own tests

`scripts/peer_suite.py CHECKOUT` runs the tests of a checkout of PyG or DGL as they are, and in two ways with compiled
layers: constructors give compiled layers, or each call of a layer goes through a compiled one. With PyG 2.8.0.post1 and
DGL 1.1.3:

| tests | pass as they are | of these with constructors | with calls | calls | run the original |
|---|---|---|---|---|---|
| PyG `test/nn/conv` | 267 | 265 | 265 | 2,450 | 7.8 % |
| PyG `test/nn/models` | 1,957 | 1,956 | 1,957 | 18,403 | 6.6 % |
| PyG `test/nn`, `to_hetero` and `Sequential` | 22 | 22 | 22 | 304 | 7.9 % |
| PyG `test/explain` | 2,014 | 2,014 | 2,014 | 77,850 | 5.4 % |
| DGL `tests/python/pytorch/nn` | 2,961 | 2,961 | 2,961 | 3,780 | 2.0 % |

Two tests of `GENConv` compare the first call of a lazy layer, which the original runs, with a later one, and see the
last digit. One test packages a model by `torch.package` without `extern("dacergnn.**")`. Most calls that run the
original are first calls of lazy layers; others normalize values of edges over a batch, or look at messages by hooks.
"""


class Collected:
    """A plugin of pytest that notes which tests there are of which kinds of layers."""

    def __init__(self) -> None:
        self.kinds: dict[str, set[str]] = {}
        """Names of kinds by tests."""
        self.conditional: set[str] = set()
        """Tests that leave out kinds which lack what they are about."""
        self.rows: list[str] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        from tests.compatibility.kinds import KINDS  # pytest has put the root of the project in the path

        self.rows = [kind.name for kind in KINDS]
        for item in session.items:
            assert isinstance(item, pytest.Function)
            name = item.function.__name__
            kind: Any = item.callspec.params.get("kind") if hasattr(item, "callspec") else None
            if kind is None:  # about layers of its own
                continue
            self.kinds.setdefault(name, set()).add(kind.name)
            if "skip" in item.function.__code__.co_names:
                self.conditional.add(name)

    def cell(self, test: str, kind: str) -> str:
        if kind not in self.kinds[test]:
            return "-"
        return "(yes)" if test in self.conditional else "yes"


def collect() -> Collected:
    """Returns the tests of the folder; SystemExit unless each has a topic, and each topic a test."""
    found, output = Collected(), io.StringIO()
    arguments = ["--collect-only", "-q", "-p", "no:cacheprovider", f"--rootdir={ROOT}", str(TESTS)]
    with redirect_stdout(output):
        code = pytest.main(arguments, plugins=[found])
    if code != pytest.ExitCode.OK:
        sys.exit(f"The tests in {TESTS} cannot be collected:\n{output.getvalue()}")
    known = {topic.test for topics in TOPICS.values() for topic in topics}
    for test in sorted(known ^ set(found.kinds)):
        lacks = "has no test of that name" if test in known else "has no line in TOPICS of docs/compatibility_topics.py"
        sys.exit(f"{test} {lacks}; write one and run docs/make_compatibility.py.")
    return found


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("|" + "".join(f" {cell} |" for cell in line).replace(" --- ", "---") for line in lines)


def page() -> str:
    """Returns the text of compatibility.md."""
    found, text = collect(), HEAD
    for title, topics in TOPICS.items():
        effects = table(["", "what is done", "what happens"], [[t.title, t.done, t.effect] for t in topics])
        rows = [[f"`{kind}`", *[found.cell(t.test, kind) for t in topics]] for kind in found.rows]
        kinds = table(["kind of layer", *[t.title for t in topics]], rows)
        text += f"\n## {title}\n\n{effects}\n\n{kinds}\n"
    return text + DIFFERENCES + PEERS


if __name__ == "__main__":
    give("compatibility.md", page())
