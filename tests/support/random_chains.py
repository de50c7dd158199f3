"""Seeded random programs of products: what the passes that move, merge and postpone products look for.

Linears after linears with a bias or a reshape in between, dot products with weights and with end points, linears of
concatenations and sums of end points, products scaled and summed to either side, copies of values and weights.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

from tests.support.program_text import LOOPS, ROWS, TYPES
from tests.support.random_expressions import Shape
from tests.support.random_graphs import random_graph, single_typed
from tests.support.random_programs import Case, Writer, finish


def random_chains(seed: int) -> Case:
    """The case of a seed; in half of them every relation joins one type of nodes with one."""
    rng = random.Random(seed)
    graph = random_graph(rng)
    if rng.random() < 0.5:
        graph = single_typed(graph)
    writer = Chains(rng, graph.bipartite, smooth=rng.random() < 0.33)
    case = finish(seed, graph, writer, writer.program(rng.choice([1, 1, 1, 1, 2])))
    return case if rng.random() < 0.5 else replace(case, wrt=list(case.inputs))


def chains() -> st.SearchStrategy[Case]:
    """Random cases for hypothesis."""
    return st.builds(random_chains, st.integers(0, 2**32 - 1))


@dataclass
class Chains(Writer):
    """Writes loops of products that build on each other."""

    lines: list[str] = field(default_factory=list[str])  # of the present loop

    def piece(self) -> list[str]:
        kinds = {"chain": 5, "convolution": 4, "sum": 1, "copy": 0.5, "weights": 0.5, "any": 1}
        kind = self.rng.choices([*kinds], [*kinds.values()])[0]
        if kind == "any":
            return super().piece()
        spaces = [6, 2, 1, 1, 1] if kind in ("chain", "copy") else [1, 0, 0, 0, 0]
        self.begin(self.rng.choices(["E", "NS", "ND", "U", "V"], spaces)[0])
        shape = self.rng.choice(self.shapes)
        if kind == "chain":
            self.chain()
        elif kind == "convolution":
            self.convolution()
        elif kind == "sum":
            self.sum_up(self.row(shape), shape)
        elif kind == "weights":
            self.copy_of_weights()
        else:
            self.assign(self.leaf(shape), shape)
        return self.lines

    def begin(self, space: str) -> None:
        self.space, (self.variable, iterator) = space, LOOPS[space]
        self.owner = None
        self.lines = [f"    for {self.variable} in g.{iterator}():"]

    def assign(self, value: str, shape: Shape, letter: str = "t") -> str:
        """Give a value of this row shape a name; returns how it is read."""
        name = self.name(letter)
        self.values[self.space, name] = shape
        text = f'{self.variable}["{name}"]'
        self.lines.append(f"        {text} = {value}")
        return text

    def row(self, shape: Shape) -> str:
        """A value that belongs to no type, mostly of an end point."""
        if self.space == "E" and self.rng.random() < 0.6:
            return self.leaf(shape, kinds=("src", "dst"))
        return self.leaf(shape, kinds=("src", "dst", "srcpair", "dstpair", ""))

    def weight(self, shape: Shape) -> str:
        """A weight, mostly by the type of the row itself."""
        kinds = self.rng.choice([("etype", "ntype"), ("etype", "ntype"), ("one",), TYPES])
        return self.leaf(shape, bounded=True, kinds=kinds if self.space not in ("R", "T", "ONE") else TYPES)

    # Products after products

    def chain(self) -> None:
        rng = self.rng
        shape = (rng.choice([1, 3, 4]),)
        if rng.random() < 0.2:
            shape = (2, *shape)
        rows = self.operand(shape)
        for _ in range(rng.choice([1, 2, 2, 2, 3])):
            rows, shape = self.linear_after(rows, shape)
        form = rng.choice(["score", "score", "match", "none", "none", "sum"])
        if form == "score":
            rows, shape = self.score(rows, shape), shape[:-1]
        elif form == "match":
            rows, shape = self.match(rows, shape), shape[:-1]
        elif form == "sum":
            rows, shape = self.assign(f"sum({rows} + {self.leaf(shape[:-1])})", shape[:-1]), shape[:-1]
        if rng.random() < 0.5 and self.space in ("E", "U", "V"):
            self.sum_up(rows, shape)
        elif not self.lines[1:]:
            self.assign(rows, shape)

    def operand(self, shape: Shape) -> str:
        """A value of an end point, or several in one."""
        rng, last = self.rng, shape[-1]
        form = rng.choice(["one", "one", "one", "concat", "sum", "difference", "copy"])
        first = self.row(shape)
        if form == "concat" and last > 1:
            cut = rng.randint(1, last - 1)
            parts = (self.row((*shape[:-1], n)) for n in (cut, last - cut))
            return f"concat({', '.join(parts)})"
        if form in ("sum", "difference"):
            text = f"{first} {'+' if form == 'sum' else '-'} {self.row(shape)}"
            return self.assign(text, shape) if rng.random() < 0.5 else text
        return self.assign(first, shape) if form == "copy" else first

    def linear_after(self, rows: str, shape: Shape) -> tuple[str, Shape]:
        """A linear of ``rows``, now and then with a bias, a nonlinearity or heads behind it."""
        rng = self.rng
        m, transposed = rng.choice([1, 2, 4]), rng.random() < 0.2
        weight = self.weight((*shape[:-1], m, shape[-1]) if transposed else (*shape, m)) + (".T" if transposed else "")
        value, shape = f"linear({rows}, {weight})", (*shape[:-1], m)
        form = rng.choice(["plain", "plain", "plain", "bias", "tanh", "heads", "scaled", "inside"])
        if form == "heads" and len(shape) == 1:
            h = rng.choice([h for h in (1, 2) if m % h == 0])
            return self.assign(f"reshape({value}, {h}, {m // h})", (h, m // h)), (h, m // h)
        if form == "heads":
            return self.assign(f"reshape({value}, {shape[0] * m})", (shape[0] * m,)), (shape[0] * m,)
        if form == "inside":
            return value, shape
        if form == "scaled" and rng.random() < 0.4:
            return self.assign(f"{self.leaf(shape[:-1], bounded=True, kinds=('',))} * {value}", shape), shape
        text = self.assign(value, shape)
        if form == "bias":
            bias = self.weight(shape if rng.random() < 0.7 else shape[: rng.randint(0, len(shape))])
            value = f"{text} + {bias}" if rng.random() < 0.7 else f"{bias} + {text}"
            return (self.assign(value, shape) if rng.random() < 0.7 else f"({value})"), shape
        if form == "tanh":
            return self.assign(f"tanh({text})", shape), shape
        if form == "scaled":
            return self.assign(f"{self.leaf(shape[: rng.randint(0, len(shape))], bounded=True)} * {text}", shape), shape
        return text, shape

    def score(self, rows: str, shape: Shape) -> str:
        """The dot product with a weight."""
        pair = [rows, self.weight(shape)]
        self.rng.shuffle(pair)
        return self.assign(f"dot_prd({', '.join(pair)})", shape[:-1], "s")

    def match(self, rows: str, shape: Shape) -> str:
        """The dot product with another row, which may be a product itself."""
        other = self.row(shape)
        if len(shape) == 2 and self.rng.random() < 0.2:
            other = f"{self.row(shape[::-1])}.T"
        elif self.rng.random() < 0.5:
            k = self.rng.choice([1, 3, 4])
            x = self.row((*shape[:-1], k))
            other = self.assign(f"linear({x}, {self.weight((*shape[:-1], k, shape[-1]))})", shape)
        pair = [rows, other]
        self.rng.shuffle(pair)
        return self.assign(f"dot_prd({', '.join(pair)})", shape[:-1], "s")

    # Sums to end points

    def convolution(self) -> None:
        """Products of one end point by relation, summed at the other, perhaps scaled for each edge or head."""
        rng, near_and_far = self.rng, ["src", "dst"]
        rng.shuffle(near_and_far)
        near, far = near_and_far
        heads, k, m = rng.choice([(), (), (2,)]), rng.choice([1, 3, 4]), rng.choice([1, 2, 4])
        weight = self.leaf((*heads, k, m), bounded=True, kinds=("etype",))
        rows = f"linear({self.leaf((*heads, k), kinds=(near,))}, {weight})"
        if rng.random() < 0.6:
            rows = self.assign(rows, (*heads, m))
        if rng.random() < 0.7:
            rows = f"{self.leaf(rng.choice([(), heads]), bounded=True, kinds=('',))} * {rows}"
        name, pair = self.name("S"), rng.random() < 0.2
        self.lines.append(f'        e.{far}{"_pair" if pair else ""}["{name}"] += {rows}')
        self.values[{"src": ("NS", "U"), "dst": ("ND", "V")}[far][pair], name] = (*heads, m)

    def sum_up(self, rows: str, shape: Shape) -> None:
        """Sum rows, scaled by a value for each row, head or feature, at an end point or a pair."""
        rng, name = self.rng, self.name("S")
        if rng.random() < 0.25 and shape:
            k = rng.choice([1, 3])
            rows, shape = f"linear({rows}, {self.weight((*shape, k))})", (*shape[:-1], k)
        if rng.random() < 0.7:
            low = shape[: rng.randint(0, len(shape))]
            scale = self.leaf(low, bounded=True, kinds=rng.choice([("",), ("", "src", "dst")]))
            if low == () and rng.random() < 0.1:
                scale = f"reshape({self.leaf((1,), bounded=True)})"
            if rng.random() < 0.3:
                scale = self.assign(scale, low, "c")
            rows = f"{scale} * {rows}" if rng.random() < 0.7 else f"{rows} * {scale}"
        ends = [(text, space) for path, space, text in ROWS[self.space] if path not in ("", *TYPES, "typedsrc")]
        if rng.random() < 0.1:
            ends = [(text, space) for path, space, text in ROWS[self.space] if path in TYPES]
        end, owner = rng.choice(ends)
        target = end.replace("{e}", self.variable).replace("{x}", name)
        if rng.random() < 0.1:
            self.lines.append(f"        {target} = max({target}, {rows})")
        else:
            self.lines.append(f"        {target} += {rows}")
        self.values[owner, name] = shape

    # Copies

    def copy_of_weights(self) -> None:
        """A weight by another name, perhaps in another shape."""
        self.begin(self.rng.choice(["R", "T", "ONE"]))
        shape = (self.rng.choice([1, 3, 4]), self.rng.choice([1, 2, 4]))
        text = self.leaf(shape, bounded=True, kinds=("",))
        if self.rng.random() < 0.4:
            shape = (*shape[::-1],)
            text = f"reshape({text}, {shape[0]}, {shape[1]})"
        self.assign(text, shape, "B")
        self.bounded.add((self.space, f"B{self.count}"))
