"""Seeded random programs, as text: loops over every row space, all operators, maps, weights and reductions.

Values stay in a range where every operator is smooth: divisors, logarithms and roots are kept away from zero, factors
are bounded, and what has a kink gets a constant of its own, so that no value sits on it by construction.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.support.random_graphs import RawGraph, random_graph

Shape = tuple[int, ...]

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


@dataclass(frozen=True)
class Case:
    """A program, a graph, inputs in float64, and inputs to differentiate with respect to."""

    text: str
    graph: RawGraph
    inputs: dict[str, Tensor]
    wrt: list[str]
    smooth: bool


def random_case(seed: int) -> Case:
    """The case of a seed; a third of them are smooth, i.e. without detach and comparisons."""
    rng = random.Random(seed)
    graph = random_graph(rng)
    writer = _Writer(rng, graph.bipartite, smooth=rng.random() < 0.33)
    return _case(seed, graph, writer, writer.program(rng.choice([1, 2, 2, 3, 3, 4])))


def large_case(seed: int) -> Case:
    """A program of many loops on a graph that has something of everything."""
    rng = random.Random(seed)
    graph = random_graph(rng, bipartite=False)
    while len(graph.src) < 12 or len(graph.dst_type) < 3:
        graph = random_graph(rng, bipartite=False)
    writer = _Writer(rng, False, smooth=False, last=60)
    case = _case(seed, graph, writer, writer.program(14))
    return replace(case, wrt=list(case.inputs))


def _case(seed: int, graph: RawGraph, writer: _Writer, text: str) -> Case:
    rng = writer.rng
    generator = torch.Generator().manual_seed(seed)
    sizes = graph.maps()[1]
    inputs = {
        name: torch.rand(sizes[space], *shape, generator=generator, dtype=torch.float64) * 2 - 1
        for name, (space, shape) in writer.inputs.items()
    }
    names = list(inputs)
    wrt = names if rng.random() < 0.5 or not names else rng.sample(names, rng.randint(1, len(names)))
    return Case(text, graph, inputs, wrt, writer.smooth)


def cases() -> st.SearchStrategy[Case]:
    """Random cases for hypothesis."""
    return st.builds(random_case, st.integers(0, 2**32 - 1))


@dataclass
class _Writer:
    rng: random.Random
    bipartite: bool
    smooth: bool
    last: int = 4  # as many of the last values may be results
    inputs: dict[str, tuple[str, Shape]] = field(default_factory=dict[str, tuple[str, Shape]])
    values: dict[tuple[str, str], Shape] = field(default_factory=dict[tuple[str, str], Shape])
    bounded: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])  # within [-1, 1]
    count: int = 0
    space: str = "E"
    variable: str = "e"
    owner: tuple[str, str, str] | None = None  # of an inner loop: path, row space and variable of the outer one

    def program(self, loops: int) -> str:
        rng = self.rng
        h, k, m = rng.choice([1, 2, 3]), rng.choice([1, 3, 4]), rng.choice([2, 4, 5])
        self.shapes: list[Shape] = [(), (h,), (k,), (m,), (h, k), (h, m)]
        body: list[str] = []
        softmax = False
        for _ in range(loops):
            if rng.random() < 0.12:
                body += self.softmax()
                softmax = True
            elif rng.random() < 0.2:
                body += self.messages()
            else:
                body += self.loop()
        results = self.results()
        declared = [f"{n}: {s}" + (f"[{', '.join(map(str, d))}]" if d else "") for n, (s, d) in self.inputs.items()]
        head = f"def program({', '.join(['g', *declared])}):"
        return "\n".join([(SOFTMAX if softmax else "") + head, *body, f"    return {', '.join(results)}"]) + "\n"

    def results(self) -> list[str]:
        names = list(dict.fromkeys(n for _, n in self.values if n not in self.inputs))
        chosen = [n for n in names[-self.last :] if self.rng.random() < 0.6]
        return list(dict.fromkeys([*chosen, names[-1]]))

    # Loops and statements

    def loop(self) -> list[str]:
        rng = self.rng
        self.space = rng.choices([*LOOPS], [8, 3, 4, 2, 2, 1, 1, 1, 1])[0]
        self.variable, iterator = LOOPS[self.space]
        self.owner = None
        lines = [f"    for {self.variable} in g.{iterator}():"]
        nested = [(path, method) for (space, path), method in NESTS.items() if space == self.space]
        if self.bipartite:
            nested = [(path, method) for path, method in nested if (self.space, path) != ("NS", "dst")]
        if nested and rng.random() < 0.6:
            path, method = rng.choice(nested)
            if rng.random() < 0.3:
                lines += self.own_statement("        ")
            outer = (self.space, self.variable)
            self.owner, self.space, self.variable = (path, *outer), "E", "e"
            lines.append(f"        for e in {outer[1]}.{method}():")
            if rng.random() < 0.3:
                lines += self.own_statement("            ")
            lines += self.reduction("            ")
            (self.space, self.variable), self.owner = outer, None
            if rng.random() < 0.5:
                lines += self.own_statement("        ")
            return lines
        for _ in range(rng.randint(1, 3)):
            reduce = len(ROWS[self.space]) > 1 and rng.random() < 0.35
            lines += self.reduction("        ") if reduce else self.own_statement("        ")
        return lines

    def softmax(self) -> list[str]:
        self.space, self.variable, self.owner = "E", "e", None
        shape = self.rng.choice(self.shapes)
        name = self.name("att")
        value = self.bound(shape, 2)
        lines = ["    for e in g.edges():", f'        e["{name}"] = {value}', f'    edge_softmax(g, "{name}")']
        self.values["E", name] = shape
        self.bounded.add(("E", name))
        if not self.smooth:  # alone they show the detached maximum
            self.values["ND", "largest"] = self.values["ND", "total"] = shape
        return lines

    def messages(self) -> list[str]:
        """Products of gathered rows that are scaled and summed: what the fusing passes look for."""
        rng = self.rng
        self.space, self.variable = rng.choice([("E", "e"), ("U", "p"), ("V", "v")])
        self.owner = None
        e, k, shape = self.variable, rng.choice([1, 3, 4]), rng.choice(self.shapes[1:])
        rows, message, result = self.name("g"), self.name("v"), self.name("S")
        scale = self.leaf(rng.choice([(), shape[:-1]]), bounded=True, kinds=("",)) + " * " if rng.random() < 0.6 else ""
        x = self.leaf((*shape[:-1], k))
        lines = [f"    for {e} in g.{LOOPS[self.space][1]}():"]
        if rng.random() < 0.5:
            lines.append(f'        {e}["{rows}"] = {x}')
            x = f'{e}["{rows}"]'
        w = self.leaf((*shape[:-1], k, shape[-1]), bounded=True, kinds=TYPES)
        lines.append(f'        {e}["{message}"] = linear({x}, {w})')
        end, owner = rng.choice([(text, space) for path, space, text in ROWS[self.space] if path not in ("", *TYPES)])
        target = end.replace("{e}", e).replace("{x}", result)
        lines.append(f'        {target} += {scale}{e}["{message}"]')
        self.values[owner, result] = shape
        return lines

    def own_statement(self, indent: str) -> list[str]:
        rng, space = self.rng, self.space
        if rng.random() < 0.1 and space != "E":
            return self.product_of_weights(indent)
        known = [(n, s) for (sp, n), s in self.values.items() if sp == space and n not in self.inputs]
        if known and rng.random() < 0.2:  # assigned again, renamed by the compiler
            name, shape = rng.choice(known)
            operator = rng.choice(["=", "+=", "-=", "*=", "/="])
            value = self.expression(shape, 2) if operator in ("=", "+=") else self.bound(shape, 1)
            if operator == "/=":
                value = f"({rng.choice([1.5, 2.5])} + {value})"
            self.bounded.discard((space, name))
            return [f'{indent}{self.variable}["{name}"] {operator} {value}']
        shape, name = rng.choice(self.shapes), self.name("v")
        bound = rng.random() < 0.4
        value = self.bound(shape, 2) if bound else self.expression(shape, rng.choice([1, 2, 2, 3]))
        local = rng.random() < 0.15
        self.values[space, name] = shape
        if bound:
            self.bounded.add((space, name))
        target = name if local else f'{self.variable}["{name}"]'
        if space == "ND" and not self.bipartite and rng.random() < 0.1:  # an array over the sources
            self.values.pop((space, name))
            self.values["NS", name] = shape
            self.bounded.discard((space, name))
            target = f'{self.variable}.src["{name}"]'
        return [f"{indent}{target} = {value}"]

    def product_of_weights(self, indent: str) -> list[str]:
        """A weight made inside the program: of a type, scaled."""
        shape = self.rng.choice([(2, 3), (2, 3, 2)])
        name = self.name("C")
        value = f"tanh({self.leaf(shape)} * {self.bound(self.rng.choice([(), shape[:1]]), 1)})"
        self.values[self.space, name] = shape
        self.bounded.add((self.space, name))
        return [f'{indent}{self.variable}["{name}"] = {value}']

    def reduction(self, indent: str) -> list[str]:
        rng = self.rng
        if self.owner is not None:
            path, space, variable = self.owner
            template = variable + '["{x}"]'
        else:
            ways = [w for w in ROWS[self.space] if w[0]]
            if self.bipartite:
                ways = [w for w in ways if w[1] != "NS" or w[0] == "src"]
            path, space, template = rng.choice(ways)
        template = template.replace("{e}", self.variable)
        outer = path in TYPES and rng.random() < 0.4 and self.space != "ONE"
        name = self.name("S")
        if outer:
            k, m = rng.choice([1, 3, 4]), rng.choice([2, 5])
            h = rng.choice([(), (2,)])
            shape, value = (*h, k, m), f"outer_prod({self.expression((*h, k), 1)}, {self.bound((*h, m), 1)})"
        else:
            known = [n for (sp, n), s in self.values.items() if sp == space and n[0] == "S" and len(s) < 2]
            if known and rng.random() < 0.15:
                name = rng.choice(known)
                shape = self.values[space, name]
            else:
                shape = rng.choice(self.shapes)
            value = self.expression(shape, rng.choice([0, 1, 2, 3]))
        target = template.replace("{x}", name)
        lines: list[str] = []
        if not outer and rng.random() < 0.3:
            kind = rng.choice(["max", "min"])
            lines.append(f"{indent}{target} = {kind}({target}, {value})")
        else:
            lines.append(f"{indent}{target} += {value}")
        self.values[space, name] = shape
        self.bounded.discard((space, name))
        return lines

    def name(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    # Expressions of a wanted row shape

    def ways(self) -> list[tuple[str, str, str]]:
        """Reachable row spaces; destinations are sources too unless the graph is bipartite."""
        ways = [*ROWS[self.space]]
        if not self.bipartite:
            ways += [(path, "NS", text) for path, space, text in ways if space == "ND"]
        if self.owner is not None:
            path, space, variable = self.owner
            ways.append((path, space, variable + '["{x}"]'))
        return ways

    def visible(self, space: str, path: str, name: str) -> bool:
        """An array over the sources is hidden, seen from destinations, by one of the same name over these."""
        reached_as_destination = path == "dst" or (path == "" and self.space == "ND")
        return not (space == "NS" and reached_as_destination and ("ND", name) in self.values)

    def leaf(self, shape: Shape, bounded: bool = False, kinds: tuple[str, ...] | None = None) -> str:
        """A reference to a value of this shape; now and then, or where there is none, to a new input."""
        rng = self.rng
        ways = [w for w in self.ways() if kinds is None or w[0] in kinds]
        found = [
            text.replace("{x}", name)
            for path, space, text in ways
            for (at, name), s in self.values.items()
            if at == space and s == shape and self.visible(space, path, name)
            if not bounded or (at, name) in self.bounded
        ]
        if found and (rng.random() < 0.75 or len(self.inputs) > 9):
            text = rng.choice(found)
        else:
            _, space, text = rng.choice(ways)
            name = self.name("x")
            self.inputs[name], self.values[space, name] = (space, shape), shape
            self.bounded.add((space, name))
            text = text.replace("{x}", name)
        return text.replace("{e}", self.variable)

    def bound(self, shape: Shape, depth: int) -> str:
        """An expression with values within [-1, 1]."""
        if depth <= 0 or self.rng.random() < 0.3:
            return self.leaf(shape, bounded=True)
        return f"{self.rng.choice(['tanh', 'sigmoid', 'erf'])}({self.expression(shape, depth - 1)})"

    def expression(self, shape: Shape, depth: int) -> str:
        rng = self.rng
        if depth <= 0:
            return self.leaf(shape)
        options: list[Callable[..., str]] = [self.leaf, *[self.unary] * 2, *[self.binary] * 3, self.product]
        if len(shape) < 2:
            options += [self.total]
        if len(shape) == 1:
            options += [self.linear, self.linear, self.linear, self.reshaped, self.pieces]
        if len(shape) == 2:
            options += [self.linear, self.linear, self.reshaped, self.pieces]
        option = rng.choice(options)
        return option(shape) if option == self.leaf else option(shape, depth - 1)

    def unary(self, shape: Shape, depth: int) -> str:
        rng, x = self.rng, self.expression(shape, depth)
        kink = f"{x} + {rng.uniform(-1, 1):.3f}"
        forms = [
            f"-{self.bound(shape, depth)}", f"exp({self.bound(shape, depth)})", f"tanh({x})", f"sigmoid({x})",
            f"erf({x})", f"gelu({x})", f"log({rng.choice([1.5, 2.5])} + {self.bound(shape, depth)})",
            f"sqrt(1.25 - {self.bound(shape, depth)})", f"abs({kink})", f"relu({kink})", f"leakyrelu({kink}, 0.2)",
            f"leakyrelu({kink})", f"elu({kink}, 1.3)", f"elu({kink})",
        ]  # fmt: skip
        if not self.smooth:
            forms += [f"detach({x})", f"({kink} > 0.0) * {self.bound(shape, 0)}", f"({kink} <= 0.0)"]
        return rng.choice(forms)

    def binary(self, shape: Shape, depth: int) -> str:
        """Element-wise with one operand possibly of lower rank."""
        rng = self.rng
        low = shape[: rng.randint(0, len(shape))] if rng.random() < 0.5 else shape
        wide, x = self.expression(shape, depth), self.expression(low, depth)
        factor = self.bound(low, depth)
        constant = f"{rng.uniform(-2, 2):.3f}"
        pair = [wide, x] if rng.random() < 0.5 else [x, wide]
        return rng.choice([
            f"({pair[0]} + {pair[1]})", f"({pair[0]} - ({pair[1]}))", f"{factor} * ({wide})", f"({wide}) * {factor}",
            f"({wide}) / ({rng.choice([1.5, 2.5])} + {factor})", f"{constant} * ({wide})", f"({wide} + {constant})",
            f"max({pair[0]} + {constant}, {pair[1]})", f"min({pair[0]}, {pair[1]} + {constant})",
            f"({factor}) / (2.0 - {self.bound(shape, depth)})",
        ])  # fmt: skip

    def product(self, shape: Shape, depth: int) -> str:
        """A row scaled by a value of lower rank: what fuses into a product."""
        low = shape[: self.rng.randint(0, len(shape))]
        return f"{self.leaf(low, bounded=True, kinds=('',))} * {self.expression(shape, depth)}"

    def total(self, shape: Shape, depth: int) -> str:
        wide = (*shape, self.rng.choice([1, 2, 3]))
        if self.rng.random() < 0.4:
            return f"sum({self.expression(wide, depth)})"
        low = wide[: self.rng.randint(0, len(wide))] if self.rng.random() < 0.2 else wide
        pair = [self.expression(wide, depth), self.bound(low, depth)]
        self.rng.shuffle(pair)
        return f"dot_prd({pair[0]}, {pair[1]})"

    def linear(self, shape: Shape, depth: int) -> str:
        """Typed, untyped or per head, the weights as they are or transposed."""
        rng = self.rng
        k, m, transposed = rng.choice([1, 3, 4]), shape[-1], rng.random() < 0.3
        weight = (*shape[:-1], m, k) if transposed else (*shape[:-1], k, m)
        w = self.leaf(weight, bounded=True, kinds=TYPES)
        x = self.expression((*shape[:-1], k), depth if rng.random() < 0.5 else 0)
        if rng.random() < 0.1 and not transposed:
            return f"({x} @ {w})"
        return f"linear({x}, {w}{'.T' if transposed else ''})"

    def reshaped(self, shape: Shape, depth: int) -> str:
        size = shape[0] * (shape[1] if len(shape) == 2 else 1)
        other = (size,) if len(shape) == 2 else self.rng.choice([(1, size), (size, 1)])
        if len(shape) == 1 and size % 2 == 0:
            other = (2, size // 2)
        inner = self.expression(other, depth) if self.rng.random() < 0.7 else self.leaf(other)
        return f"reshape({inner}, {', '.join(map(str, shape))})"

    def pieces(self, shape: Shape, depth: int) -> str:
        rng, last = self.rng, shape[-1]
        if last > 1 and rng.random() < 0.6:
            cut = rng.randint(1, last - 1)
            head, tail = (*shape[:-1], cut), (*shape[:-1], last - cut)
            return f"concat({self.expression(head, depth)}, {self.expression(tail, depth)})"
        if rng.random() < 0.3:
            return f"expand({self.expression(shape[:-1], depth)}, {last})"
        start = rng.randint(0, 2)
        wide = (*shape[:-1], start + last + rng.randint(0, 1))
        return f"slice({self.expression(wide, depth)}, {start}, {start + last})"
