"""Which sparse format a traversal gets."""

from __future__ import annotations

import dace
import pytest

from dacergnn import Config, parse, print_program
from dacergnn.config import Rates
from dacergnn.errors import DacergnnError
from dacergnn.graph.profile import Profile
from dacergnn.library_nodes import Traversal
from dacergnn.program import Program
from dacergnn.sdfg_passes import Context, SelectAdjacency, compile_program
from dacergnn.sdfg_passes.adjacency_cost import format_seconds

SIZES = {"NS": 1000, "ND": 1000, "E": 8000, "U": 1000, "V": 1000, "R": 1, "T": 1, "ONE": 1, "RNS": 1000}
GCN = """def p(g, h: NS[64], w: E):
    for e in g.edges():
        e.dst["out"] += e.w * e.src.h
    return out
"""
GAT = """def p(g, h: NS[16], s: NS, t: ND):
    for e in g.edges():
        e["x"] = exp(leakyrelu(e.src.s + e.dst.t, 0.2))
        e.dst["total"] += e["x"]
        e.dst["out"] += e["x"] / e.dst["total"] * e.src.h
    return out
"""


def profile(longest: int, **sizes: int) -> Profile:
    hubs = dict.fromkeys(("src", "dst", "srcpair", "dstpair"), longest)
    return Profile(tuple((SIZES | sizes).items()), single_typed=True, hubs=tuple(hubs.items()))


def formats(text: str, config: Config, given: Profile, wrt: tuple[str, ...] = ()) -> list[str]:
    """Formats of the traversals of the forward, then of the backward."""
    plan = compile_program(parse(text), list(wrt), config, dace.int32, given, keep=False)
    parts = [plan.forward] if plan.backward is None else [plan.forward, plan.backward]
    return [o.adjacency for sdfg in parts for o in Program(sdfg).operators if isinstance(o, Traversal)]


@pytest.mark.parametrize("adjacency", ["csr", "csc", "coo", "ell", "hybrid"])
def test_what_is_asked_for(adjacency: str) -> None:
    assert formats(GCN, Config(adjacency=adjacency), profile(20)) == [adjacency]
    assert set(formats(GCN, Config(adjacency=adjacency), profile(20), ("h",))) == {adjacency}
    # A sum that its own loop reads cannot run by columns.
    assert formats(GAT, Config(adjacency=adjacency), profile(20)) == ["csr" if adjacency == "csc" else adjacency]


@pytest.mark.parametrize("implementation", ["pure", "cuda"])
def test_targets_refuse_formats_that_they_do_not_have(implementation: str) -> None:
    message = f"adjacency='coo': kernels of '{implementation}' run on csr only; leave adjacency out"
    with pytest.raises(DacergnnError, match=message):
        formats(GCN, Config(adjacency="coo", implementation=implementation), profile(20))
    assert formats(GCN, Config(adjacency="auto", implementation=implementation), profile(20)) == ["csr"]


def test_hubs_keep_compressed_rows_where_threads_could_not_share_them() -> None:
    many = profile(500_000, E=1_000_000)
    assert formats(GCN, Config(adjacency="hybrid"), many) == ["csr"]
    assert formats(GCN, Config(adjacency="csc"), many) == ["csr"]
    assert formats(GCN, Config(adjacency="coo"), many) == ["coo"]


def test_compressed_rows_unless_another_format_is_clearly_cheaper() -> None:
    for given in (profile(20), profile(200), profile(500_000, E=1_000_000), Profile(tuple(SIZES.items()))):
        assert formats(GCN, Config(), given) == ["csr"]
        assert formats(GAT, Config(), given) == ["csr"]
    # One group holds half of the edges, and is too short to be divided between threads.
    assert formats(GCN, Config(), profile(4000)) == ["coo"]


def test_padding() -> None:
    wide = profile(5000, E=800_000, ND=90_000, NS=90_000)
    with pytest.raises(DacergnnError) as error:
        formats(GCN, Config(adjacency="ell"), wide)
    assert str(error.value) == (
        "adjacency='ell': ELLPACK of 90,000 rows of ND with up to 5,000 edges takes 1,717 MiB, 563 slots "
        'for each edge; use "hybrid" or "csr", or ask for it with "ell:563".'
    )
    assert formats(GCN, Config(adjacency="ell:563"), wide) == ["ell"]
    assert formats(GCN, Config(adjacency="ell"), profile(1000)) == ["ell"]  # as many slots for an edge, in 4 MB


@pytest.mark.parametrize(("longest", "offered"), [(32, True), (100, False)])
def test_plans_may_pad_each_edge_to_a_few_slots(longest: int, offered: bool) -> None:
    found = compile_program(parse(GCN), [], Config(), dace.int32, profile(longest), keep=False)
    assert ("ell" in found.asked["forward/select_adjacency/out"].options) == offered


def test_listings_show_formats() -> None:
    sdfg = parse(GCN)
    SelectAdjacency("ell").run(sdfg, Context())
    assert "# Traversal; ell; len_E_dst, ell_E_dst_src, ell_E_dst" in print_program(sdfg)


def test_wrong_formats() -> None:
    for adjacency in ("bsr", "ell:0.5", "ell:many", "csr:2", ""):
        with pytest.raises(DacergnnError, match=r"is not one of auto, csr, csc, coo, ell, hybrid and ell:SLOTS\.$"):
            Config(adjacency=adjacency)


@pytest.mark.parametrize("relations", [1, 2])
def test_seconds_of_formats(relations: int) -> None:
    """40 edges of 5 destinations and 10 sources, the longest group with 12; a byte a second, and a row."""
    (operator,) = Program(sdfg := parse(GCN)).operators
    sizes = SIZES | {"NS": 10, "ND": 5, "E": 40, "R": relations}
    row, out = 64 * 4, 5 * 64 * 4
    given = sizes, {"dst": 12}, 4, Rates(1.0, 1.0, 1.0, 1.0)
    weights = 40 * 4 if relations == 1 else 40 * (64 + 1)  # edges stand by type
    rows, waits = weights + 40 * (row + 1) + out, 12 * 8 / 40
    expected = {
        "csr": (rows + 5 * 4) * waits,
        "coo": rows + 40 * 4,
        "ell": (rows + (1 + 12 * 2) * 5 * 4) * waits,
        "hybrid": (rows + 45 * 4) * waits,
        "csc": (40 * (64 + 1) + 10 * row + 1.5 * 40 * (row + 1) + 8 * 40 * 4) * waits,
    }
    assert format_seconds(operator, sdfg, *given) == pytest.approx(expected)
    even = format_seconds(operator, sdfg, sizes, {"dst": 4}, 4, given[-1])  # nobody waits
    assert even["csr"] == pytest.approx(rows + 5 * 4)
