"""Programs that hold one statement of every kind: what the expansions of the nodes have to get right."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tests.support.random_programs import LOOPS, NESTS, ROWS, TYPES

SHAPES = {"": "", "k": "[5]", "h": "[2]", "hk": "[2, 3]"}
SPACES = ("NS", "ND", "E", "U", "V", "R", "T", "ONE", "RNS")
UNARY = (
    "exp({x})", "log({x} * {x} + 1.5)", "sqrt({x} * {x} + 1.5)", "abs({x})", "erf({x})", "tanh({x})", "sigmoid({x})",
    "relu({x})", "gelu({x})", "leakyrelu({x}, 0.2)", "elu({x}, 1.3)", "sin({x})", "cos({x})",
    "pow({x} * {x} + 0.5, 1.5)", "-{x}", "detach({x})",
    "clamp_min({x}, 0.1)", "clamp_max({x}, 0.1)",
)  # fmt: skip
BINARY = (
    "{x} + {y}", "{x} - {y}", "{x} * {y}", "{x} / ({y} * {y} + 1.5)", "max({x}, {y})", "min({x}, {y})", "{x} > {y}",
    "{x} >= {y}", "({x} > 0.5) == ({y} > 0.5)",
)  # fmt: skip
STRUCTURAL = (
    "sum(e.x_k)", "sum(e.src.x_hk)", "dot_prd(e.x_k, e.src.x_k)", "dot_prd(e.x_h, e.x_hk)", "concat(e.x_k, e.dst.x_k)",
    "concat(e.x_hk, 2.0 * e.src.x_hk)", "slice(e.x_k, 1, 4)", "slice(e.x_hk + 1.0, 0, 2)", "expand(e.x_h, 4)",
    "expand(e.x_, 2, 3)", "reshape(e.x_hk, 6)", "reshape(e.src.x_hk, 3, 2)", "e.x_ * e.x_hk", "e.x_hk / (e.x_h + 4.0)",
    "reshape(e.x_k + e.dst.x_k, 5, 1) * e.x_k", "concat(slice(e.x_k, 0, 2), sum(e.x_hk))", "3.0",
    "sum_heads(e.x_hk * e.x_h)", "to_heads(e.src.x_k, 2) * e.x_h",
    "dot_prd(concat(e.x_hk, e.src.x_hk), 2.0)", "sum(slice(e.x_k, 2, 5) * slice(e.x_k, 0, 3))",
)  # fmt: skip


class Builder:
    """Collects loops; every value assigned is a result."""

    def __init__(self) -> None:
        self.loops: list[str] = []
        self.count = 0

    def new(self) -> str:
        self.count += 1
        return f"r{self.count}"

    def loop(self, space: str, *lines: str) -> None:
        variable, iterator = LOOPS[space]
        self.loops.append("\n".join([f"    for {variable} in g.{iterator}():", *(f"        {line}" for line in lines)]))

    def text(self, inputs: Iterable[str], every: int) -> str:
        """The program of every so-manieth loop."""
        body = "\n".join(self.loops[::every])
        results = dict.fromkeys(re.findall(r"\br\d+\b", body))
        return f"def program(g, {', '.join(inputs)}):\n{body}\n    return {', '.join(results)}\n"


def _inputs() -> list[str]:
    return [f"x{space}_{name}: {space}{shape}" for space in SPACES for name, shape in SHAPES.items()]


def _way(text: str, variable: str, name: str) -> str:
    return text.replace("{e}", variable).replace("{x}", name)


def traversals(every: int = 1) -> str:
    """Every operator, every map read and every reduction."""
    b = Builder()
    for form in (*UNARY, *BINARY):
        b.loop("E", f'e["{b.new()}"] = ' + form.format(x="e.xE_k", y="e.src.xNS_k"))
    for form in STRUCTURAL:
        text = form.replace("e.src.x_", "e.src.xNS_").replace("e.dst.x_", "e.dst.xND_").replace("e.x_", "e.xE_")
        b.loop("E", f'e["{b.new()}"] = {text}')
    for space, ways in ROWS.items():
        variable = LOOPS[space][0]
        reads = [_way(text, variable, f"x{reached}_hk") for _, reached, text in ways]
        if space in ("E", "V", "ND"):  # destinations are sources
            reads.append({"E": "e.dst.xNS_hk", "V": "v.dst.xNS_hk", "ND": "n.xNS_hk"}[space])
        b.loop(space, f'{variable}["{b.new()}"] = {" + ".join(reads)}')
    b.loop("ND", f'n.src["{b.new()}"] = n.xND_k')
    for space, ways in ROWS.items():
        variable = LOOPS[space][0]
        for path, _, text in ways[1:]:
            shape = "k" if path in ("src", "dst", "etype", "one") else "hk"
            target = _way(text, variable, b.new())
            wide, scalar = (_way(ways[0][2], variable, f"x{space}_{kind}") for kind in (shape, ""))
            b.loop(space, f"{target} += 1.5 * {wide}")
            target = _way(text, variable, b.new())
            b.loop(space, f"{target} = max({target}, {wide})")
            target = _way(text, variable, b.new())
            b.loop(space, f"{target} = min({target}, {scalar})")
    b.loop("V", f'v.dst.src["{b.new()}"] += v.xV_k')
    for (space, _), method in NESTS.items():
        variable = LOOPS[space][0]
        for operation in ("{0} += {1}", "{0} = max({0}, {1})"):
            target = f'{variable}["{b.new()}"]'
            value = f"e.xE_h * e.src.xNS_hk + {variable}.x{space}_"
            b.loop(space, f"for e in {variable}.{method}():", "    " + operation.format(target, value))
    return b.text(_inputs(), every)


# (row shape of x, of the weights): odd sizes, sizes of full registers, heads.
GEMM_SHAPES = {"odd": ("5", "5, 3"), "full": ("16", "16, 32"), "heads": ("2, 3", "2, 3, 4"), "thin": ("1", "1, 1")}


def products(kinds: Sequence[str] = tuple(GEMM_SHAPES), every: int = 1) -> str:
    """Products along every map: typed by each type, transposed, scaled, scattered; outer products."""
    b = Builder()
    inputs: list[str] = []
    for kind in kinds:
        x, w = GEMM_SHAPES[kind]
        heads, m = w.split(", ")[:-2], w.split(", ")[-1]
        y = ", ".join([*heads, m])
        for space in SPACES:
            inputs += [f"x{space}_{kind}: {space}[{x}]", f"y{space}_{kind}: {space}[{y}]"]
        inputs += [f"W{space}_{kind}: {space}[{w}]" for space in ("R", "T", "ONE")]
        scale = f"[{heads[0]}]" if heads else ""
        inputs += [f"s{space}_{kind}: {space}{scale}" for space in ("E", "U", "V", "NS", "ND")]
        full = kind in ("odd", "heads")
        for space in ("E", "U", "V", "NS", "ND"):
            variable = LOOPS[space][0]
            ways = ROWS[space] if full else [w for w in ROWS[space] if w[0] in ("", "src", "etype", "one")]
            types = [w for w in ways if w[0] in TYPES]
            scales = ["", _way(ROWS[space][0][2], variable, f"s{space}_{kind}") + " * "]
            own = ROWS[space][0][2]
            for number, (_, reached, text) in enumerate(ways):
                _, owner, weight = types[number % len(types)]
                weights, scaled = _way(weight, variable, f"W{owner}_{kind}"), scales[number // 2 % 2]
                row, transposed = (f"x{reached}_{kind}", "") if number % 2 else (f"y{reached}_{kind}", ".T")
                row = _way(text, variable, row)
                b.loop(space, f'{variable}["{b.new()}"] = {scaled}linear({row}, {weights}{transposed})')
                _, owner, target = types[(number + 1) % len(types)]
                operands = [_way(text, variable, f"x{reached}_{kind}"), _way(own, variable, f"y{space}_{kind}")]
                if number % 3 == 0:  # the gathered operand on the other side
                    operands = [_way(own, variable, f"x{space}_{kind}"), _way(text, variable, f"y{reached}_{kind}")]
                scaled = scales[(number + 1) // 2 % 2]
                b.loop(space, f"{_way(target, variable, b.new())} += {scaled}outer_prod({', '.join(operands)})")
            scattered = [text for path, _, text in ways if path not in ("", *TYPES)]
            for number, text in enumerate(scattered):
                for way, (_, owner, weight) in enumerate(types[number % 2 :: 2]):
                    weights, scaled = _way(weight, variable, f"W{owner}_{kind}"), scales[(number + way) % 2]
                    _, reached, gathered = ways[(number + way) % len(ways)]
                    row, transposed = (f"x{reached}_{kind}", "") if way % 2 else (f"y{reached}_{kind}", ".T")
                    row = _way(gathered, variable, row)
                    b.loop(space, f"{_way(text, variable, b.new())} += {scaled}linear({row}, {weights}{transposed})")
        b.loop("R", f'r["{b.new()}"] = linear(r.xR_{kind}, WONE_{kind})')
        b.loop("ONE", f'o["{b.new()}"] = linear(xONE_{kind}, WONE_{kind})')
        b.loop("ONE", f'o["{b.new()}"] = linear(o.xONE_{kind}, WONE_{kind})')
        b.loop("ONE", f"{b.new()} += outer_prod(xONE_{kind}, o.yONE_{kind})")
        b.loop("ND", f'n["{b.new()}"] = linear(n.xNS_{kind}, WT_{kind}[n.ntype])')
        b.loop("ND", f'n.src["{b.new()}"] = linear(n.xND_{kind}, WT_{kind}[n.ntype])')
        b.loop("V", f'v.dst.src["{b.new()}"] += linear(v.xV_{kind}, WR_{kind}[v.etype])')
        if kind == "heads":
            inputs.append("B: ONE[6, 6]")
            b.loop("E", f'e["{b.new()}"] = reshape(linear(reshape(e.xE_heads, 6), B), 3, 2)')
    return b.text(inputs, every)
