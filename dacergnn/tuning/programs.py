"""Random layers in program form (Singh et al., section III-A, algorithm 1), for performance models to learn from.

A layer is built stage by stage. A stage has a few nodes, each of which makes a new feature from a feature of earlier
stages: by a product, a sum over neighbours, attention, a network on edges, or an activation. Features that no node used
go on to the next stage; at the end, those left are joined. As by the paper's filters, layers have one output, a
least depth and a largest size, and consist mostly of common parts.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

LEAST_DEPTH = 4
"""Statements on the longest way from the input to the output."""
MOST_LINES = 30
"""Lines of a layer: common layers have up to twenty, and the time to compile grows fast with the number."""
WIDTHS = (8, 16, 32, 48, 64, 96, 128)
HEADS = (1, 2, 4, 8)
KINDS = {"product": 3.0, "sum": 3.0, "attention": 2.5, "gate": 1.0, "edge_network": 1.0, "activation": 1.0}
"""Kinds of nodes of a stage, with the weights by which they are drawn."""
NODE_WISE = ("product", "activation")
MOST_EDGE_VALUES = 64
"""The most elements of a value of an edge; large graphs have millions of edges."""
ACTIVATIONS = ("relu({})", "tanh({})", "sigmoid({})", "leakyrelu({}, 0.2)", "elu({}, 1.0)", "gelu({})")


@dataclass(frozen=True)
class RandomLayer:
    """Holds a layer in program form.

    Args:
        text: Its source, for `dacergnn.parse`.
        family: The kinds of nodes that make messages, joined by "+": layers of one family resemble each other.
        learned: Inputs whose gradients a training step needs.
        dtype: Element type of its arrays, "float32" or "bfloat16".
    """

    text: str
    family: str
    learned: tuple[str, ...]
    dtype: str = "float32"


def random_layer(seed: int, relations: bool | None = None) -> RandomLayer:
    """Returns the layer of a seed.

    Args:
        relations: Whether weights may belong to relations and node types; None leaves it to chance.
    """
    rng = random.Random(seed)
    while True:
        typed = rng.random() < 0.7 if relations is None else relations
        layer = _Layer(rng, typed)
        layer.build()
        if layer.depth >= LEAST_DEPTH and layer.messages and len(layer.lines) < MOST_LINES:
            return layer.result()


@dataclass(frozen=True)
class _Feature:
    """Describes a value of nodes: its width, depth and row space, which is "ND" for sums over neighbours."""

    name: str
    width: int
    depth: int
    space: str = "NS"


@dataclass
class _Layer:
    rng: random.Random
    typed: bool
    inputs: dict[str, str] = field(default_factory=dict[str, str])
    lines: list[str] = field(default_factory=list[str])
    messages: set[str] = field(default_factory=set[str])
    depth: int = 0
    _count: int = 0

    def build(self) -> None:
        rng = self.rng
        width = rng.choice(WIDTHS)
        self.inputs["x"] = f"NS[{width}]"
        features = [self.x]
        for _ in range(rng.choice((1, 1, 2, 2, 3))):
            features = self._stage(features)
        if not any(f.space == "ND" for f in features):
            features.append(self._sum(features[0]))
        joined = self._joined([f for f in features if f.depth])
        self.lines.append(f"    return {joined.name}")
        self.depth = joined.depth

    def result(self) -> RandomLayer:
        parameters = ", ".join(f"{name}: {spec}" for name, spec in self.inputs.items())
        text = "\n".join([f"def layer(g, {parameters}):", *self.lines]) + "\n"
        learned = tuple(n for n, spec in self.inputs.items() if n == "x" or spec.split("[")[0] in ("R", "T", "ONE"))
        return RandomLayer(text, "+".join(sorted(self.messages)), learned)

    # Stages

    def _stage(self, features: list[_Feature]) -> list[_Feature]:
        """Adds a stage; returns its new features, and the earlier features that it did not use."""
        rng = self.rng
        new: list[_Feature] = []
        used: set[_Feature] = set()
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
            kind = rng.choices([*KINDS], [*KINDS.values()])[0]
            source = rng.choice(features if kind in NODE_WISE else [f for f in features if f.space == "NS"] or [self.x])
            made = getattr(self, f"_{kind}")(source)
            new.append(made)
            used.add(source)
        return [*new, *(f for f in features if f not in used and f.depth)]

    def _joined(self, features: list[_Feature]) -> _Feature:
        """Joins all features to one by sums of products, in some layers with a bias, the input and an activation."""
        rng = self.rng
        features = sorted(features, key=lambda f: f.space)
        first = features[0]
        terms = [f"n.{first.name}"]
        for other in features[1:]:
            weight = self._weight(other.width, first.width, "n")
            terms.append(f"linear(n.{other.name}, {weight})")
        if rng.random() < 0.3:
            terms.append(f"linear(n.x, {self._weight(self.x.width, first.width, 'n')})")
        if rng.random() < 0.5:
            terms.append(self._input("bias", f"ONE[{first.width}]"))
        expr = " + ".join(terms)
        if rng.random() < 0.4:
            expr = rng.choice(ACTIVATIONS).format(f"({expr})")
        if len(terms) == 1 and expr == terms[0]:
            return first
        return self._of_nodes(expr, _Feature("", first.width, max(f.depth for f in features), "ND"))

    # Kinds of nodes

    def _product(self, source: _Feature) -> _Feature:
        width = self.rng.choice(WIDTHS)
        product = f"linear(n.{source.name}, {self._weight(source.width, width, 'n')})"
        return self._of_nodes(product, replace(source, width=width))

    def _activation(self, source: _Feature) -> _Feature:
        return self._of_nodes(self.rng.choice(ACTIVATIONS).format(f"n.{source.name}"), source)

    def _sum(self, source: _Feature) -> _Feature:
        """Adds a sum, mean or maximum over neighbours, of rows or of products by relation."""
        rng = self.rng
        self.messages.add("sum")
        message, width = f"e.src.{source.name}", source.width
        if rng.random() < 0.6:
            width = rng.choice(WIDTHS)
            message = f"linear({message}, {self._weight(source.width, width, 'e')})"
        how = rng.choices(("weighted", "sum", "mean", "max"), (4, 2, 2, 1))[0]
        if how == "weighted":
            message = f"e.{self._input('norm', 'E')} * {message}"
        name = self._name("n")
        function = how if how in ("mean", "max") else "sum"
        self.lines += [
            "    for n in g.dst_nodes():",
            f'        n["{name}"] = {function}({message} for e in n.incoming_edges())',
        ]
        return _Feature(name, width, source.depth + 2, "ND")

    def _attention(self, source: _Feature) -> _Feature:
        """Adds sums that a softmax over the edges of a node weights, of one or several heads."""
        rng = self.rng
        self.messages.add("attention")
        heads, channels = rng.choice(HEADS), rng.choice((8, 16, 32))
        width = heads * channels
        rows, score = self._name("h"), self._name("s")
        weight = self._weight(source.width, width, "e")
        form = rng.choice(("additive", "dot", "joint"))
        lines = [f'        e["{rows}"] = reshape(linear(e.src.{source.name}, {weight}), {heads}, {channels})']
        other = f"reshape(linear(e.dst.{source.name}, {self._weight(source.width, width, 'e')}), {heads}, {channels})"
        vector = f"ONE[{heads}, {channels}]"
        if form == "additive":
            a, b = self._input("a", vector), self._input("a", vector)
            value = f'leakyrelu(dot_prd(e["{rows}"], {a}) + dot_prd({other}, {b}), 0.2)'
        elif form == "dot":
            value = f'dot_prd(e["{rows}"], {other}) * {channels**-0.5:.4f}'
        else:
            value = f'dot_prd(leakyrelu(e["{rows}"] + {other}, 0.2), {self._input("a", vector)})'
        self.lines += ["    for e in g.edges():", *lines, f'        e["{score}"] = {value}']
        self._softmax(score)
        name, flat = self._name("n"), self._name("n")
        self.lines += [
            "    for n in g.dst_nodes():",
            f'        n["{name}"] = sum(e["{score}"] * e["{rows}"] for e in n.incoming_edges())',
            f'        n["{flat}"] = reshape(n["{name}"], {width})',
        ]
        return _Feature(flat, width, source.depth + 6, "ND")

    def _gate(self, source: _Feature) -> _Feature:
        """Adds sums over neighbours of rows, each times a number from 0 to 1 that depends on both end points."""
        rng = self.rng
        self.messages.add("gate")
        a, b = (self._vector(source.width) for _ in range(2))
        gate = f"sigmoid(dot_prd(e.src.{source.name}, {a}) + dot_prd(e.dst.{source.name}, {b}))"
        width = rng.choice(WIDTHS)
        value, name = self._name("s"), self._name("n")
        message = f"linear(e.src.{source.name}, {self._weight(source.width, width, 'e')})"
        self.lines += [
            "    for e in g.edges():",
            f'        e["{value}"] = {gate}',
            "    for n in g.dst_nodes():",
            f'        n["{name}"] = sum(e["{value}"] * {message} for e in n.incoming_edges())',
        ]
        return _Feature(name, width, source.depth + 4, "ND")

    def _edge_network(self, source: _Feature) -> _Feature:
        """Adds the sum, mean or maximum over a node's edges of a function of both end points."""
        rng = self.rng
        self.messages.add("edge_network")
        width = rng.choice([w for w in WIDTHS if w <= MOST_EDGE_VALUES])
        ends = rng.choice(("concat(e.dst.{0}, e.src.{0} - e.dst.{0})", "concat(e.src.{0}, e.dst.{0})"))
        value, name = self._name("h"), self._name("n")
        product = f"linear({ends.format(source.name)}, {self._weight(2 * source.width, width, 'e')})"
        activation = rng.choice(ACTIVATIONS).format(product)
        function = rng.choice(("max", "sum", "mean"))
        self.lines += [
            "    for e in g.edges():",
            f'        e["{value}"] = {activation}',
            "    for n in g.dst_nodes():",
            f'        n["{name}"] = {function}(e["{value}"] for e in n.incoming_edges())',
        ]
        return _Feature(name, width, source.depth + 3, "ND")

    def _softmax(self, score: str) -> None:
        largest, total = self._name("t"), self._name("t")
        self.lines += [
            "    for n in g.dst_nodes():",
            f'        n["{largest}"] = max(e["{score}"] for e in n.incoming_edges())',
            "    for e in g.edges():",
            f'        e["{score}"] = exp(e["{score}"] - detach(e.dst["{largest}"]))',
            "    for n in g.dst_nodes():",
            f'        n["{total}"] = sum(e["{score}"] for e in n.incoming_edges())',
            "    for e in g.edges():",
            f'        e["{score}"] = e["{score}"] / e.dst["{total}"]',
        ]

    # Words

    @property
    def x(self) -> _Feature:
        """Returns the input features."""
        return _Feature("x", int(self.inputs["x"][len("NS[") : -1]), 0)

    def _of_nodes(self, expr: str, like: _Feature) -> _Feature:
        """Adds a feature that ``expr`` computes, for the nodes that have ``like``."""
        name = self._name("n")
        loop = {"NS": "src_nodes", "ND": "dst_nodes"}[like.space]
        self.lines += [f"    for n in g.{loop}():", f'        n["{name}"] = {expr}']
        return replace(like, name=name, depth=like.depth + 1)

    def _weight(self, rows: int, columns: int, variable: str) -> str:
        """Adds a matrix, in layers with types perhaps one for each relation or node type; returns its text."""
        kinds = {"n": ("one", "ntype"), "e": ("one", "etype", "etype", "etype")}[variable]
        kind = self.rng.choice(kinds) if self.typed else "one"
        space = {"one": "ONE", "ntype": "T", "etype": "R"}[kind]
        name = self._input("W", f"{space}[{rows}, {columns}]")
        return name if kind == "one" else f"{name}[{variable}.{kind}]"

    def _vector(self, width: int) -> str:
        """Adds a vector for edges, in layers with types perhaps one for each relation; returns its text."""
        typed = self.typed and self.rng.random() < 0.5
        name = self._input("a", f"{'R' if typed else 'ONE'}[{width}]")
        return f"{name}[e.etype]" if typed else name

    def _input(self, letter: str, spec: str) -> str:
        name = letter if letter == "bias" else self._name(letter)
        self.inputs[name] = spec
        return name

    def _name(self, letter: str) -> str:
        self._count += 1
        return f"{letter}{self._count}"
