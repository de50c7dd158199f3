"""Recording of torch functions that are called with recorded values."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from inspect import signature
from math import prod
from typing import Any

import torch
from torch import Tensor

from dacergnn.errors import UnsupportedCallError
from dacergnn.frontends.symbolic import activations, axes, elementwise, masks, parted, products
from dacergnn.frontends.symbolic.call import LayerCall
from dacergnn.frontends.symbolic.callers import caller_text
from dacergnn.frontends.symbolic.dispatch import records
from dacergnn.frontends.symbolic.edges import EdgeIndex, EndIndex, JoinedIndex, plain, untracked
from dacergnn.frontends.symbolic.expr import Untranslatable
from dacergnn.frontends.symbolic.indexing import INDEXING
from dacergnn.frontends.symbolic.notes import transforms
from dacergnn.frontends.symbolic.shapes import known_sizes, result_shape, with_rows
from dacergnn.frontends.symbolic.sizes import number
from dacergnn.frontends.symbolic.table import IN_PLACE, MASKS, RULES, VIEWS, Rule
from dacergnn.frontends.symbolic.trace import Trace
from dacergnn.frontends.symbolic.value import Value, held

RULE_MODULES = (activations, axes, elementwise, masks, parted, products)
"""Modules that fill the tables of rules and of indexing when they are imported."""
COUNTS = {
    getattr(owner, name)
    for owner in (torch, Tensor)
    for name in ("numel", "nelement", "__len__")
    if hasattr(owner, name)
}
"""Functions that count rows or elements."""
STRIDED = {
    getattr(Tensor, name) for name in ("stride", "storage_offset", "is_contiguous", "is_non_overlapping_and_dense")
    if hasattr(Tensor, name)
}  # fmt: skip
"""Functions about how the elements of a tensor lie in memory."""
ABOUT = {
    getattr(owner, name)
    for owner in (torch, Tensor)
    for name in (
        "is_floating_point", "is_complex", "is_tensor", "ndimension", "nelement", "numel", "stride",
        "storage_offset", "element_size", "get_device", "__len__", "is_same_size", "is_contiguous", "size", "dim",
        "is_inference", "is_signed", "is_conj", "is_neg",
    )
    if hasattr(owner, name)
}  # fmt: skip
"""Functions that depend on shape and type alone."""

_ADDITIONS = (RULES[torch.add], RULES[torch.sub])
OF_GRADIENTS = ("grad", "grad_fn", "is_leaf", "retains_grad", "_version", "_base", "output_nr")
"""Attributes that tell how a tensor was computed; a recorded value has those of the tensor that it becomes."""


@records
def record(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Records a function and returns its value, or runs it in torch where no program expresses it.

    Raises:
        UnsupportedCallError: The function is about edges, and no program expresses it.
    """
    values: list[Value] = []
    ends: list[EdgeIndex | EndIndex] = []
    _find(args, values, ends)
    if kwargs:
        _find(kwargs.values(), values, ends)
    trace = values[0].owner if values else ends[0].edges.trace
    assert isinstance(trace, Trace)
    if values:
        check_modes(trace)
    rule = RULES.get(func)
    try:
        if kwargs.get("inplace"):
            return _in_place(trace, func, plain(args), {**plain(kwargs), "inplace": False}, values)
        if rule is not None and not ends:
            return apply_rule(trace, rule, func, args, kwargs, values)
        indexing = INDEXING.get(func)
        if indexing is not None:
            result = indexing(trace, *args, **kwargs)
            if result is not None:
                return result
        if func in ABOUT or func.__name__ == "__get__":
            return _attribute(func, args, kwargs)
        args, kwargs = plain(args), plain(kwargs)
        if not values:
            return func(*args, **kwargs)
        functional = Tensor.masked_fill if _fills(func, args) else IN_PLACE.get(func)
        if functional is not None:
            return _in_place(trace, functional, args, kwargs, values)
        if rule is not None:
            return apply_rule(trace, rule, func, args, kwargs, values)
    except Untranslatable:
        pass
    return _in_torch(trace, func, args, kwargs, values)


def check_modes(trace: Trace) -> None:
    """Raises UnsupportedCallError within a mode that the call has not begun in, and that programs do not know."""
    device = trace.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        raise UnsupportedCallError(f"autocast is turned on within the call ({caller_text()}); turn it on around it.")
    if transforms() != trace.transforms:
        raise UnsupportedCallError(
            f"a transform of torch.func, or forward differentiation, is within the call ({caller_text()}); apply it to "
            "the layer."
        )


def _find(tree: Iterable[Any], values: list[Value], ends: list[EdgeIndex | EndIndex]) -> None:
    """Collects the recorded values and the end points among some arguments."""
    for item in tree:
        kind = type(item)
        if kind is Value:
            values.append(item)
        elif kind is EndIndex or kind is EdgeIndex or kind is JoinedIndex:
            ends.append(item)
        elif kind is tuple or kind is list:
            _find(item, values, ends)


def _attribute(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns an attribute of a value, or the result of a function of shape and type."""
    (value, *rest) = args
    if func in STRIDED and isinstance(value, Value):
        return func(_argument(value, func), *rest, **kwargs)
    if func in COUNTS:
        return prod(value.shape) if func.__name__ != "__len__" else number(value.shape[0] + 0)
    name = getattr(func.__self__, "__name__", "") if func.__name__ == "__get__" else ""
    if name == "data":
        if not isinstance(value, Value):
            raise UnsupportedCallError(f"data of edges, which may be written to, is read ({caller_text()}).")
        return value.detach()
    if name in ("T", "mT", "H", "mH") and isinstance(value, Value):
        return value.transpose(-2, -1)
    if name in OF_GRADIENTS and isinstance(value, Value):
        value.owner.once(f"{name} is read")
        return func(value.owner.results(value))
    with untracked():
        return func(plain(value), *rest, **kwargs)


def _argument(value: Value, func: Any) -> Tensor:
    """Returns the argument of the call that a value stands for; what programs compute lies in memory as they choose."""
    real = value.node.real
    if real is None or not value.owner.given(real):
        raise UnsupportedCallError(f"{spelled(func)} of a value that a program computes is read ({caller_text()}).")
    value.owner.once("strides are read")
    return real


_signature = cache(signature)


def apply_rule(
    trace: Trace, rule: Rule, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], values: list[Value]
) -> Any:
    """Records one function as the rule says."""
    if len(values) > 1:
        _one_set_of_edges(trace, rule, values)
    try:
        result = result_shape(func, args, kwargs)
    except NotImplementedError as error:
        raise Untranslatable from error
    several = type(result) is list
    known = known_sizes(args, kwargs, values)
    shapes = [(with_rows(shape, known), dtype) for shape, dtype in (result if several else [result])]
    elements = _elements_of(func, values) if shapes[0][1] is torch.bool else shapes[0][1]
    if not trace.takes(elements):
        raise Untranslatable
    call = LayerCall(trace, shapes, elements)
    try:
        _signature(rule).bind(call, *args, **kwargs)
    except TypeError as error:  # an option of torch that the rule does not know
        raise Untranslatable from error
    translated = rule(call, *args, **kwargs)
    exprs = translated if several else (translated,)
    like = values[0] if func in VIEWS else None
    recorded = call.call or (func, _nodes(args), _nodes(kwargs))
    results = [
        trace.record(expr, shape, dtype, (*recorded, i if several else None), like)
        for i, (expr, (shape, dtype)) in enumerate(zip(exprs, shapes, strict=True))
    ]
    for result in results:
        result.node.elements = elements
    return tuple(results) if several else results[0]


def _elements_of(func: Any, values: list[Value]) -> torch.dtype:
    """Returns the type of the numbers that stand for a mask; torch makes those of values that need no edges."""
    if not any(v.node.expr.edges is not None for v in values) or not (func in MASKS or func in VIEWS):
        raise Untranslatable
    return values[0].node.elements


def _nodes(tree: Any) -> Any:
    """Returns arguments with nodes in place of values, which later writes in place do not change."""
    if type(tree) is Value:
        return tree.node
    if type(tree) in (tuple, list):
        return type(tree)([_nodes(v) for v in tree])
    if type(tree) is dict:
        return {k: _nodes(v) for k, v in tree.items()}
    return tree


def _one_set_of_edges(trace: Trace, rule: Rule, values: list[Value]) -> None:
    """Computes the values that depend on other edges than the last ones, since a program is about one graph.

    What is added waits, since sums over several sets of edges may be one program.
    """
    edges = {v.node.expr.edges: None for v in values if v.node.expr.edges is not None}
    waits = rule in _ADDITIONS and trace.joins_relations and not any(v.node.expr.on_edges for v in values)
    if len(edges) < 2 or waits:
        return
    last = list(edges)[-1]
    for value in values:
        if value.node.expr.edges not in (None, last):
            if value.node.expr.on_edges:
                raise UnsupportedCallError(f"values of different edges meet ({caller_text()}).")
            trace.materialise([value.node])


def _in_place(trace: Trace, functional: Any, args: tuple[Any, ...], kwargs: dict[str, Any], values: list[Value]) -> Any:
    """Records a function that writes to its first argument, which stands for the result from then on."""
    target = args[0]
    rule = RULES.get(functional)
    if rule is None or type(target) is not Value or not trace.is_own(held(target)) or not target.alone():
        raise Untranslatable
    result = apply_rule(trace, rule, functional, args, kwargs, values)
    if result.shape != target.shape:
        raise Untranslatable
    target.node = result.node
    return target


def _fills(func: Any, args: tuple[Any, ...]) -> bool:
    """Returns whether a function writes one number to all elements of a value that a mask chooses."""
    if func is not Tensor.__setitem__:
        return False
    target, mask, number = args
    masked = type(mask) is Value and mask.dtype is torch.bool and mask.shape == target.shape
    return masked and type(number) in (int, float)


def _in_torch(trace: Trace, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], values: list[Value]) -> Any:
    """Runs a function of values in torch, after they have been computed."""
    if not writes(func, kwargs):
        result = trace.torch(func, *trace.results(args), **trace.results(kwargs))
        for value in values:
            trace.exposes(value, result)
        return result
    target = args[0]
    if kwargs.get("out") is not None or (type(target) is Value and (trace.given(held(target)) or not target.alone())):
        raise UnsupportedCallError(f"{spelled(func)} writes to a tensor that is in use ({caller_text()}).")
    if type(target) is not Value:
        return trace.torch(func, *trace.results(args), **trace.results(kwargs))
    real = trace.torch(Tensor.clone, trace.results(target))  # programs may need their results for gradients
    result = trace.torch(func, real, *trace.results(args[1:]), **trace.results(kwargs))
    target.node = trace.written(real, target.shape)
    return target if result is real else result


def writes(func: Any, kwargs: dict[str, Any]) -> bool:
    """Returns whether a function writes to one of its arguments."""
    name = func.__name__
    in_place = (name.endswith("_") and not name.endswith("__")) or name.startswith(("__i", "__set"))
    return in_place or kwargs.get("out") is not None or bool(kwargs.get("inplace"))


def spelled(func: Any) -> str:
    """Returns the name by which a user would look up the function."""
    module = getattr(func, "__module__", None) or ""
    if "Tensor" in getattr(func, "__qualname__", ""):
        module = "torch.Tensor"
    elif not module.startswith("torch.nn"):
        module = "torch"
    return f"{module}.{func.__name__}"
