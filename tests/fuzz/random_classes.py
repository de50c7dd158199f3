"""Random classes of message passing, and modules over graphs of DGL, whose forwards do what users' Python does."""

from __future__ import annotations

import linecache
import random
import sys
from collections.abc import Callable
from textwrap import indent
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH = 4


class Reversed(torch.autograd.Function):
    """Returns its input; its gradient is turned around and halved."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return -0.5 * gradient


class Rounded(torch.autograd.Function):
    """Rounds to tenths, with the gradient of the identity."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return (x * 10).round() / 10

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return gradient


STATEMENTS = [
    "h = self.lin(h)",
    "h = self.lin(h).relu()",
    "h = h.tanh()",
    "h = F.leaky_relu(h, 0.1)",
    "h = h.sigmoid() * h",
    "h = h * self.w",
    "h = h + x",
    "h = torch.where(h > 0, h, 0.5 * h)",
    "h = self.helper(h)",
    "h = self.frozen(h) + h",
    "h = Reversed.apply(h)",
    "h = Rounded.apply(h)",
    "h = h + h.detach() * 0.5",
    "h = h - self.mean",
    "h = F.dropout(h, 0.5, self.training)",
    "h = torch.cat([h, x], dim=-1)[:, :WIDTH]",
    "h = torch.cat([h[:, 1:], h[:, :1]], dim=-1)",
    "h = h / (1 + h.detach().norm())",
    "h = F.layer_norm(h, (WIDTH,))",
    "h = h - h.mean(dim=0)",
    "h = h.softmax(dim=-1)",
    "with torch.no_grad():\n    size = h.abs().max()\nh = h / (1 + size)",
    "with torch.no_grad():\n    h2 = h * 2\nh = h + h2",
    "torch.set_grad_enabled(False)\ns = h.mean()\ntorch.set_grad_enabled(enabled)\nh = h * (1 + s)",
    "with torch.no_grad():\n    self.mean.mul_(0.9).add_(h.mean(0), alpha=0.1)",
    "self.mean = 0.5 * self.mean + 0.5 * h.detach().mean(0)",
    "self.last = h.detach()",
    "self.kept.append(h.detach().sum())",
    "if h.size(0) > 9:\n    h = 2 * h\nelse:\n    h = -h",
    "if float(h.detach().sum()) > 1e-6:  # where rounding errors do not decide\n    h = 0.5 * h",
    "if torch.isnan(h).any():\n    raise ValueError",
    "h = h.clone()\nh[0] = 0",
    "h = h.clone()\nh.mul_(1.5)",
    "h = h.view(-1, 2, WIDTH // 2).flatten(1)",
    "before, h = h, self.aggregated(h, edges)\nh = h + before",
    "h = self.aggregated(h, edges)",
    "if h.requires_grad:\n    h.register_hook(lambda g: 2 * g)",
    "h = h + torch.rand_like(h)",
    "d = F.dropout(h, 0.5, self.training)\nh = self.aggregated(d, edges) + d",
    "d = F.dropout(h, 0.5, self.training)\nh = self.aggregated(d, edges) + d.cumsum(0)",
    "h = h.data.clone().mul_(2) + h",
    "self.table['h'] = h.detach()\nh = h + self.table['h']",
    "self.count += 1\nh = h * self.count",
    "self.kept.append(h)\nh = self.kept.pop() * 2",
    "try:\n    h = h.view(-1, 7, 11)\nexcept RuntimeError:\n    h = 2 * h",
    "for part in h.split(2, dim=-1):\n    h = h + part.sum()",
    "h = torch.stack([h, x]).mean(0)",
    "h = torch.utils.checkpoint.checkpoint(self.lin, h, use_reentrant=False)",
    "with torch.autocast('cpu', enabled=False):\n    h = self.lin(h)",
    "h = h / (1 + abs(float(h.detach().numpy().sum())))",
    "h = h[h.detach().sum(-1).argsort()]",
    "h = h.flip(0)",
    "h = torch.addmm(h, h, self.lin.weight)",
    "h = h.T.contiguous().T",
    "h = h.sum(0, keepdim=True).expand_as(h) / h.size(0) + h",
    "h = h + (h.grad_fn is not None)",
    "h = h.clone()\nview = h[:, :2]\nview.mul_(3)",
    "with torch.no_grad():\n    self.w.clamp_(0.5, 1.5)\nh = h * self.w",
    "self.extra = h.detach().mean()\nh = h + self.extra",
    "y = self.aggregated(h, edges)\nz = self.aggregated(2 * h, edges)\nh = y * z",
    "with torch.no_grad():\n    y = self.aggregated(h, edges)\nh = h + y",
    "x = h",
    "h = F.batch_norm(h, None, None, training=True)",
    "h = h.detach().requires_grad_() * h",
    "h = h + torch.randn(WIDTH, generator=torch.Generator().manual_seed(3))",
    "if h.requires_grad:\n    h = h + torch.autograd.grad(h.square().sum(), h, create_graph=True)[0]",
]
MESSAGES = [
    "x_j",
    "x_j * self.w",
    "(x_j - x_i).relu()",
    "x_j * x_i.sigmoid()",
    "self.lin(x_j)",
    "x_j * (x_i * x_j).sum(-1, keepdim=True)",
    "F.dropout(x_j, 0.3, self.training)",
    "Rounded.apply(x_j)",
    "x_j + x_i.detach()",
    "torch.cat([x_j, x_i], -1)[:, :WIDTH]",
    "torch.where(x_j > x_i, x_j, 0.5 * x_i)",
    "x_j.masked_fill((x_j <= 0) & ~(x_i == x_j), -1.0)",
    "F.normalize(x_j - 2 * x_i, dim=-1)",
]
RESULTS = ["h", "h", "h", "(h, h.sum())", "{'h': h, 'x': 2 * h}", "h[:, 0]", "[h, self.mean]"]
_HEAD = """
class Net(Base):
    def __init__(self):
        super().__init__({options})
        self.lin, self.w = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.rand(WIDTH) + 0.5)
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.kept, self.last, self.table, self.count = [], None, {{}}, 0

    def helper(self, h):
        return h.exp() / (1 + h.exp())

    @torch.no_grad()
    def frozen(self, h):
        return h.square()

    def forward(self, {arguments}):
        enabled, h = torch.is_grad_enabled(), x
{body}
        return {result}
"""
_PYG = """
    def aggregated(self, h, edges):
        return self.propagate(edges, x=h)

    def message(self, {ends}):
        return {message}
"""
_PLAIN = """
    def aggregated(self, h, edges):
        src, dst = edges
        x_i, x_j = h[dst], h[src]
        message = {message}
        {reduced}
"""
REDUCED = {
    "sum": "return torch.zeros_like(h).index_add_(0, dst, message)",
    "mean": "count = h.new_zeros(h.size(0)).index_add(0, dst, h.new_ones(dst.numel()))\n"
    "        return h.new_zeros(h.shape).index_add(0, dst, message) / count.clamp(min=1).unsqueeze(-1)",
    "max": "index = dst.unsqueeze(-1).expand_as(message)\n"
    "        return torch.zeros_like(h).scatter_reduce(0, index, message, 'amax', include_self=False)",
}
_DGL = """
    def aggregated(self, h, edges):
        with edges.local_scope():
            edges.ndata["h"] = h
            {update}
            return edges.ndata["y"]
"""
UPDATES = [
    'edges.update_all(fn.copy_u("h", "m"), fn.{reduce}("m", "y"))',
    'edges.edata["a"] = edge_softmax(edges, ops.u_dot_v(edges, h, h))\n'
    '            edges.update_all(fn.u_mul_e("h", "a", "m"), fn.sum("m", "y"))',
    'edges.apply_edges(fn.u_sub_v("h", "h", "d"))\n'
    '            edges.update_all(fn.u_mul_e("h", "d", "m"), fn.{reduce}("m", "y"))',
    'edges.update_all(lambda e: {{"m": e.src["h"] * self.w}}, fn.{reduce}("m", "y"))',
]


def text_of(seed: int, kind: str) -> str:
    """Returns the source of a class."""
    rng = random.Random(seed)
    body = [rng.choice(STATEMENTS) for _ in range(rng.randint(2, 6))]
    body.insert(rng.randint(0, len(body)), "h = self.aggregated(h, edges)")
    message, update = rng.choice(MESSAGES), rng.choice(UPDATES)
    ties = any("Rounded" in text for text in (*body, message))  # each library has its own gradients for ties of maxima
    reduce = rng.choice(["sum", "mean"] if ties else ["sum", "mean", "max"])
    head = _HEAD.format(
        options=f"aggr={reduce!r}" if kind == "MessagePassing" else "",
        arguments="edges, x" if kind == "DGL" else "x, edges",
        body=indent("\n".join(body), " " * 8),
        result=rng.choice(RESULTS),
    )
    if kind == "DGL":
        return head + _DGL.format(update=update.format(reduce=reduce))
    if kind == "plain":
        return head + _PLAIN.format(message=message, reduced=REDUCED[reduce])
    return head + _PYG.format(message=message, ends="x_i, x_j" if "x_i" in message else "x_j")


def made(text: str, kind: str, name: str) -> Callable[[], nn.Module]:
    """Returns a function that makes a module of the class."""
    if kind == "DGL":
        import dgl.function as fn
        from dgl import ops
        from dgl.nn.functional import edge_softmax

        base, more = nn.Module, {"fn": fn, "ops": ops, "edge_softmax": edge_softmax}
    elif kind == "MessagePassing":
        from torch_geometric.nn import MessagePassing

        base, more = MessagePassing, {}
    else:
        base, more = nn.Module, {}
    names = {"Base": base, "torch": torch, "nn": nn, "F": F, "WIDTH": WIDTH, "Reversed": Reversed, "Rounded": Rounded}
    sys.modules[name] = module = ModuleType(name)  # PyG looks for the names of annotations there
    scope = vars(module)
    scope.update(names | more)
    file = f"<{name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), scope)

    def make() -> nn.Module:
        torch.manual_seed(1)
        return scope["Net"]().double()

    return make
