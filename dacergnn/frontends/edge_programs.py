"""EdgeConv and MoNet (Zhang et al., section 2) in program form, for layers of PyG and of DGL.

The text of a program depends on the layer: a network on edges has as many lines as steps. Arrays that end in `_own`
belong to destinations that are nodes of their own; without them, destinations are the first sources.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from dacergnn.frontends.frontend import ProgramSource, spec

Specs = Mapping[str, str]
AGGREGATIONS = {"add": "sum", "mean": "mean", "max": "max", "min": "min"}
"""PyG's names of reductions -> their names in the program form."""


def edge_conv(x: Specs, network: Specs, steps: Sequence[str], aggr: str) -> ProgramSource:
    """Aggregates the results of a network for ``h = (x_i, x_j - x_i)`` (PyG's `EdgeConv`).

    Args:
        x: Features "x", and "x_own" of destinations that are no sources.
        network: The parameters that the steps read.
        steps: Statements that assign ``h`` anew.
        aggr: One of `AGGREGATIONS`.
    """
    own = _own(x)
    edge = [f"h = concat(e.dst.{own}, e.src.x - e.dst.{own})", *steps]
    return _program("edge_conv", [*x, *network], edge, [_aggregate("out", aggr, 'e["h"]')], {**x, **network})


def difference_conv(x: Specs, in_channels: int, out_channels: int, biases: Collection[str]) -> ProgramSource:
    """Takes the largest ``theta(x_i - x_j) + phi(x_i)`` (DGL's `EdgeConv`); biases may be "b_theta" and "b_phi"."""
    own = _own(x)
    matrix = spec("ONE", out_channels, in_channels)
    parameters = {"theta": matrix, "phi": matrix, **{name: spec("ONE", out_channels) for name in biases}}
    theta, phi = (f" + {name}" if name in biases else "" for name in ("b_theta", "b_phi"))
    edge = [
        f"h = linear(e.dst.{own} - e.src.x, theta.T){theta}",
        f"h = h + (linear(e.dst.{own}, phi.T){phi})",
    ]
    return _program("edge_conv", [*x, *parameters], edge, [_aggregate("out", "max", 'e["h"]')], {**x, **parameters})


@dataclass(frozen=True)
class Mixture:
    """Holds the options of a Gaussian mixture layer.

    Args:
        in_channels: Channels of sources.
        out_channels: Channels of the result.
        dim: Number of pseudo-coordinates.
        kernels: Number of Gaussians.
        aggr: One of `AGGREGATIONS`.
        precision: The factor of the squared differences, as an expression of ``sigma``.
        weight: The matrix that features are multiplied with, ``"W"`` or ``"W.T"``.
        by_kernel: Whether rows are aggregated for each kernel, before kernels are summed up; else afterwards.
    """

    in_channels: int
    out_channels: int
    dim: int
    kernels: int
    aggr: str
    precision: str
    weight: str = "W"
    by_kernel: bool = False


def mixture(options: Mixture, x: Specs, own: Specs, residual: str = "") -> ProgramSource:
    """Aggregates ``sum_k w_k W_k x_j`` with ``w_k = exp(-1/2 sum_d (u_d - mu_kd)^2 precision_kd)`` (MoNet).

    Args:
        options: Options of the layer.
        x: Features "x", and "x_own" of destinations that are no sources.
        own: Parameters of the terms that are added to the result: "root" and "bias".
        residual: The product of the features of a destination with ``root``, for example ``"linear(n.x, root)"``.
    """
    o, k, m = options, options.kernels, options.out_channels
    shape = (o.in_channels, k * m) if o.weight == "W" else (k * m, o.in_channels)
    bindings = {**x, **_gaussians(k, o.dim), "W": spec("ONE", *shape), **own}
    source = [f'n["y"] = reshape(linear(n.x, {o.weight}), {k}, {m})']
    edge = _weights(k)
    if o.by_kernel:
        node = [_aggregate("h", o.aggr, 'e["w"] * e.src.y'), 'n["out"] = sum_heads(n["h"])']
    else:
        node = [_aggregate("out", o.aggr, 'sum_heads(e["w"] * e.src.y)')]
    node += _added(own, residual)
    return _program(
        "mixture", list(bindings), edge, node, bindings, source=source, once=[f'o["precision"] = {o.precision}']
    )


def separate_mixture(options: Mixture, x: Specs, own: Specs, residual: str = "") -> ProgramSource:
    """Does the same as `mixture` with Gaussians for every pair of an output and an input channel, weighted by ``c``.

    Rows of ``mu``, ``sigma`` and ``c`` are ordered by output channel, then by input channel, then by kernel.
    """
    o, k, f, m = options, options.kernels, options.in_channels, options.out_channels
    bindings = {**x, **_gaussians(m * f * k, o.dim), "c": spec("ONE", m * f * k), **own}
    edge = [
        *_weights(m * f * k),
        f"s = sum(reshape(w * c, {m * f}, {k}))",
        f"h = sum(reshape(s, {m}, {f}) * to_heads(e.src.x, {m}))",
    ]
    node = [_aggregate("out", o.aggr, 'e["h"]'), *_added(own, residual)]
    return _program("mixture", list(bindings), edge, node, bindings, once=[f'o["precision"] = {o.precision}'])


def _gaussians(count: int, dim: int) -> dict[str, str]:
    return {"u": spec("E", dim), "mu": spec("ONE", count, dim), "sigma": spec("ONE", count, dim)}


def _weights(count: int) -> list[str]:
    """Returns statements for the values of ``count`` Gaussians at the pseudo-coordinates of an edge."""
    return [f"d = to_heads(e.u, {count}) - mu", "w = exp(sum(d * d * precision) * -0.5)"]


def _added(own: Specs, residual: str) -> list[str]:
    terms = [*([residual] if residual else []), *(["bias"] if "bias" in own else [])]
    return [f'n["out"] = n["out"] + {term}' for term in terms]


def _own(x: Specs) -> str:
    return "x_own" if "x_own" in x else "x"


def _aggregate(target: str, aggr: str, value: str) -> str:
    return f'n["{target}"] = {AGGREGATIONS[aggr]}({value} for e in n.incoming_edges())'


def _program(
    name: str, parameters: Sequence[str], edge: Sequence[str], node: Sequence[str], bindings: Mapping[str, object],
    *, source: Sequence[str] = (), once: Sequence[str] = (),
) -> ProgramSource:  # fmt: skip
    """Returns the program of statements that run once, per source, per edge and per destination; returns ``out``."""
    loops = {"o in g.once()": once, "n in g.src_nodes()": source, "e in g.edges()": edge, "n in g.dst_nodes()": node}
    lines = [f"def {name}(g, {', '.join(parameters)}):"]
    for loop, statements in loops.items():
        if statements:
            lines += [f"    for {loop}:", *(f"        {s}" for s in statements)]
    return ProgramSource("\n".join([*lines, "    return out", ""]), tuple(sorted(bindings.items())))
