"""Lists the claims in the summary of docs/papers.md, and says when a number that was measured here bears one out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Number = float | str
Rule = Callable[[Number, float], bool]
"""Takes the paper's number and ours."""


def gain(paper: Number, here: float) -> bool:
    """Returns whether there is a gain, however large."""
    return here > 1


def alike(paper: Number, here: float) -> bool:
    """Returns whether a number is within a tenth of the paper's."""
    return isinstance(paper, (int, float)) and abs(here / paper - 1) <= 0.1


@dataclass(frozen=True)
class Claim:
    """Holds a claim of a paper.

    Args:
        place: The paper's command, and the figure or table that measures it here.
        what: The claim; what its numbers are of stands in brackets, in their order.
        keys: Names of these numbers in the facts of the figure or table.
        holds: Whether a number of ours bears the claim out.
    """

    place: tuple[str, str]
    what: str
    keys: tuple[str, ...]
    holds: Rule = gain


def means(modes: str, layers: str, rest: str) -> tuple[str, ...]:
    """Returns the names of numbers by layer and mode."""
    return tuple(rest.format(layer=layer, mode=mode) for layer in layers.split() for mode in modes.split())


LAYERS, BOTH = "rgcn rgat hgt", "infer train"
CLAIMS = (
    Claim(
        ("hector", "figure 8"),
        "inference is faster than on the best other system (RGCN, RGAT, HGT)",
        means("infer", LAYERS, "{layer} {mode} mean"),
    ),
    Claim(("hector", "figure 8"), "so is training", means("train", LAYERS, "{layer} {mode} mean")),
    Claim(
        ("hector", "table 4"),
        "so is training without compaction and reordering",
        means("train", LAYERS, "unopt {layer} {mode} mean"),
    ),
    Claim(
        ("hector", "table 5"),
        "compaction gains time (inference, training of RGAT; of HGT)",
        means(BOTH, "rgat hgt", "average {layer} {mode} C"),
    ),
    Claim(("hector", "table 5"), "reordering does", means(BOTH, "rgat hgt", "average {layer} {mode} R")),
    Claim(("hector", "table 5"), "both together do", means(BOTH, "rgat hgt", "average {layer} {mode} C+R")),
    Claim(
        ("hector", "figure 11"),
        "time grows less than twofold where widths double",
        ("growth",),
        lambda paper, here: here < 2,
    ),
    Claim(
        ("pigeon", "figure 5"),
        "training is faster than on the best other system (RGCN, RGAT, HGT)",
        means("train", LAYERS, "{layer} {mode} mean"),
    ),
    Claim(
        ("pigeon", "table 1"),
        "rows by source and type save more than 70 % of the starts of HGT's attention",
        ("mag saved",),
        lambda paper, here: here > 70,
    ),
    Claim(
        ("pigeon", "table 5"),
        "compaction and reordering gain time (inference, training of RGAT; of HGT)",
        means(BOTH, "rgat hgt", "average {layer} {mode} C+R"),
    ),
    Claim(
        ("cor", "table 1"),
        "widths at which GCN's cheaper order changes, by operations (forward, backward, backward for weights alone)",
        ("forward", "backward, with feature gradient", "backward, no feature gradient"),
        alike,
    ),
    Claim(
        ("cor", "table 2"),
        "the same with caching (all gradients, those of weights alone)",
        ("with feature gradient", "no feature gradient"),
        alike,
    ),
    Claim(
        ("cor", "figure 11"),
        "the same by time (all gradients, those of weights alone)",
        ("with input gradient", "no input gradient"),
        alike,
    ),
    Claim(("cor", "figure 14"), "the same by time, with caching", ("with input gradient", "no input gradient"), alike),
    Claim(("cor", "figure 3"), "caching makes GCN faster (at best)", ("best speed-up",)),
    Claim(
        ("cor", "figure 3"), "and takes less memory (share, at best)", ("least memory",), lambda paper, here: here < 1
    ),
    Claim(("cor", "figure 5"), "GCN is faster than PyG's (forward, training)", ("gcn forward mean", "gcn train mean")),
    Claim(("cor", "figure 7"), "GAT is faster than PyG's (forward, training)", ("gat forward mean", "gat train mean")),
    Claim(
        ("cor", "figure 6"),
        "compressed columns are faster than coordinates (forward, training)",
        ("csc forward mean", "csc train mean"),
    ),
    Claim(
        ("cor", "table 5"), "operations for each byte of SpMM on CSR (Cora, Arxiv)", ("cora csr", "arxiv csr"), alike
    ),
    Claim(
        ("zhang", "figure 1"),
        "most operations of EdgeConv are redundant, and most memory of GAT holds intermediate data (%)",
        ("redundant", "intermediate"),
        alike,
    ),
    Claim(
        ("zhang", "figure 7"),
        "training is faster than DGL's (GAT, EdgeConv, MoNet)",
        ("gat speedup mean", "edgeconv speedup mean", "monet speedup mean"),
    ),
    Claim(
        ("zhang", "figure 8"),
        "reorganization gains (time, bytes, memory)",
        ("reorganization latency mean", "reorganization io mean", "reorganization memory mean"),
    ),
    Claim(
        ("zhang", "figure 9"),
        "fusion gains (time, bytes, memory)",
        ("fusion latency mean", "fusion io mean", "fusion memory mean"),
    ),
    Claim(
        ("zhang", "figure 10"),
        "recomputation lowers the peak of memory (a layer of GAT, of MoNet)",
        ("gat recomputation memory mean", "monet recomputation memory mean"),
    ),
    Claim(
        ("zhang", "figure 10"),
        "and adds a tenth to the time at most (%)",
        ("gat recomputation slowdown", "monet recomputation slowdown"),
        lambda paper, here: here <= 10,
    ),
    Claim(("singh", "figure 6"), "two convolutions are best", ("best depth",), lambda paper, here: here == paper),
    Claim(
        ("singh", "figure 8"),
        "graph networks err less (models of Halide, TVM over them)",
        ("terms over ours", "trees over ours"),
    ),
    Claim(("singh", "figure 9"), "pairs of plans that are ranked right (%)", ("ranked mean",), alike),
)
"""Claims with at least one number that was measured here, paper by paper."""
