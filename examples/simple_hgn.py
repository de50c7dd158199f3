"""SimpleHGN is GAT with a residual, and with a term of the edge type in its attention."""

from torch import nn

import dacergnn
from examples.attention import edge_softmax
from examples.training import demonstrate


def simple_hgn(heads, width, edge_width, slope=0.05):
    @dacergnn.compile
    def layer(g, x, W, a_src, a_dst, rel, W_rel, a_rel, W_res):
        for r in g.edge_types():
            r["score"] = dot_prd(reshape(linear(r.rel, W_rel), heads, edge_width), a_rel)
        for n in g.nodes():
            n["h"] = reshape(linear(n.x, W), heads, width)
        for e in g.edges():
            e["att"] = leakyrelu(dot_prd(e.src.h, a_src) + dot_prd(e.dst.h, a_dst) + score[e.etype], slope)
        edge_softmax(g, "att")
        for n in g.dst_nodes():
            n["agg"] = sum(e["att"] * e.src.h for e in n.incoming_edges())
            n["out"] = elu(n["agg"] + reshape(linear(n.x, W_res), heads, width))
        return out

    return layer


class SimpleHGN(nn.Module):
    def __init__(self, graph, channels, classes, heads=2, edge_width=3):
        super().__init__()
        matrix, row = (channels, heads * classes), (heads, classes)
        self.conv = simple_hgn(heads, classes, edge_width).module(
            graph, W=matrix, W_res=matrix, a_src=row, a_dst=row,
            rel=edge_width, W_rel=(edge_width, heads * edge_width), a_rel=(heads, edge_width),
        )  # fmt: skip

    def forward(self, graph, x):
        return self.conv(graph, x).mean(1)


make = SimpleHGN


def main():
    return demonstrate(make)


if __name__ == "__main__":
    main()
