"""Seeded random programs, as text: loops over every row space, all operators, maps, weights and reductions."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.support.program_text import LOOPS, NESTS, ROWS, SOFTMAX, TYPES
from tests.support.random_expressions import Expressions
from tests.support.random_graphs import RawGraph, random_graph


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
    writer = Writer(rng, graph.bipartite, smooth=rng.random() < 0.33)
    return finish(seed, graph, writer, writer.program(rng.choice([1, 2, 2, 3, 3, 4])))


def large_case(seed: int) -> Case:
    """A program of many loops on a graph that has something of everything."""
    rng = random.Random(seed)
    graph = random_graph(rng, bipartite=False)
    while len(graph.src) < 12 or len(graph.dst_type) < 3:
        graph = random_graph(rng, bipartite=False)
    writer = Writer(rng, False, smooth=False, last=60)
    case = finish(seed, graph, writer, writer.program(14))
    return replace(case, wrt=list(case.inputs))


def finish(seed: int, graph: RawGraph, writer: Writer, text: str) -> Case:
    """The case of a program: random inputs, and some of them to differentiate with respect to."""
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
class Writer(Expressions):
    """Writes programs, loop after loop."""

    def program(self, loops: int) -> str:
        rng = self.rng
        h, k, m = rng.choice([1, 2, 3]), rng.choice([1, 3, 4]), rng.choice([2, 4, 5])
        self.shapes = [(), (h,), (k,), (m,), (h, k), (h, m)]
        body = [line for _ in range(loops) for line in self.piece()]
        results = self.results()
        declared = [f"{n}: {s}" + (f"[{', '.join(map(str, d))}]" if d else "") for n, (s, d) in self.inputs.items()]
        head = f"def program({', '.join(['g', *declared])}):"
        used = SOFTMAX if any("edge_softmax(g" in line for line in body) else ""
        return "\n".join([used + head, *body, f"    return {', '.join(results)}"]) + "\n"

    def piece(self) -> list[str]:
        """One loop, or a few that belong together."""
        if self.rng.random() < 0.12:
            return self.softmax()
        return self.messages() if self.rng.random() < 0.2 else self.loop()

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
