"""Random expressions of a wanted row shape, as text.

Values stay in a range where every operator is smooth: divisors, logarithms and roots are kept away from zero, factors
are bounded, and what has a kink gets a constant of its own, so that no value sits on it by construction.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.program_text import ROWS, TYPES

Shape = tuple[int, ...]


@dataclass
class Expressions:
    """Writes expressions of the loop over ``space``; what they read and is not there yet becomes an input."""

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
    shapes: list[Shape] = field(default_factory=list[Shape])  # of most values
    owner: tuple[str, str, str] | None = None  # of an inner loop: path, row space and variable of the outer one

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
            f"leakyrelu({kink})", f"elu({kink}, 1.3)", f"elu({kink})", f"clamp_min({kink}, 0.1)",
            f"clamp_max({kink}, 0.1)", f"expm1({self.bound(shape, depth)})", f"silu({x})", f"softplus({x})",
            f"log1p(0.5 + {self.bound(shape, depth)})",
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
            f"where({factor} > {constant}, {pair[0]}, {pair[1]})",
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
        if len(shape) == 2 and rng.random() < 0.3:
            return f"outer_prod({self.bound(shape[:1], depth)}, {self.expression(shape[1:], depth)})"
        if rng.random() < 0.3:
            return f"expand({self.expression(shape[:-1], depth)}, {last})"
        if len(shape) == 1 and rng.random() < 0.3:
            return f"sum_heads({self.expression((rng.choice([1, 2, 3]), last), depth)})"
        if rng.random() < 0.2:
            return f"to_heads({self.expression(shape[1:], depth)}, {shape[0]})"
        start = rng.randint(0, 2)
        wide = (*shape[:-1], start + last + rng.randint(0, 1))
        return f"slice({self.expression(wide, depth)}, {start}, {start + last})"
