"""How programs are spelled: loops, the ways from a row to others, an edge softmax."""

from __future__ import annotations

# Ways from a row space: path, row space that it leads to, and how it is written, {e} being the loop variable.
ROWS = {
    "E": [("", "E", '{e}["{x}"]'), ("src", "NS", '{e}.src["{x}"]'), ("dst", "ND", "{e}.dst.{x}"),
          ("srcpair", "U", '{e}.src_pair["{x}"]'), ("dstpair", "V", '{e}.dst_pair["{x}"]'),
          ("etype", "R", "{x}[{e}.etype]"), ("srctype", "T", "{x}[{e}.src.ntype]"),
          ("dsttype", "T", "{x}[{e}.dst.ntype]"), ("typedsrc", "RNS", "{x}[{e}.etype, {e}.src]")],
    "U": [("", "U", '{e}["{x}"]'), ("src", "NS", "{e}.src.{x}"), ("etype", "R", "{x}[{e}.etype]"),
          ("srctype", "T", "{x}[{e}.src.ntype]")],
    "V": [("", "V", "{e}.{x}"), ("dst", "ND", '{e}.dst["{x}"]'), ("etype", "R", "{x}[{e}.etype]"),
          ("dsttype", "T", "{x}[{e}.dst.ntype]")],
    "NS": [("", "NS", '{e}["{x}"]'), ("ntype", "T", "{x}[{e}.ntype]")],
    "ND": [("", "ND", "{e}.{x}"), ("ntype", "T", "{x}[{e}.ntype]")],
    "R": [("", "R", '{e}["{x}"]')],
    "T": [("", "T", "{e}.{x}")],
    "ONE": [("", "ONE", '{e}["{x}"]')],
    "RNS": [("", "RNS", '{e}["{x}"]')],
}  # fmt: skip
for _ways in ROWS.values():
    _ways.append(("one", "ONE", "{x}"))
LOOPS = {
    "E": ("e", "edges"), "NS": ("n", "src_nodes"), "ND": ("n", "dst_nodes"), "U": ("p", "src_pairs"),
    "V": ("v", "dst_pairs"), "R": ("r", "edge_types"), "T": ("t", "node_types"), "ONE": ("o", "once"),
    "RNS": ("w", "typed_nodes"),
}  # fmt: skip
NESTS = {
    ("ND", "dst"): "incoming_edges", ("NS", "dst"): "incoming_edges", ("NS", "src"): "outgoing_edges",
    ("V", "dstpair"): "incoming_edges", ("U", "srcpair"): "outgoing_edges",
}  # fmt: skip
TYPES = ("etype", "ntype", "srctype", "dsttype", "one")
SOFTMAX = """def edge_softmax(g, name):
    for n in g.dst_nodes():
        n["largest"] = -1e30
        for e in n.incoming_edges():
            n["largest"] = max(n["largest"], e[name])
    for e in g.edges():
        e[name] = exp(e[name] - detach(e.dst["largest"]))
    for n in g.dst_nodes():
        n["total"] = 0.0
        for e in n.incoming_edges():
            n["total"] += e[name]
    for e in g.edges():
        e[name] /= e.dst["total"]

"""
