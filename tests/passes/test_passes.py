"""The passes as before/after listings, the pipeline around them, and SDFGs on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import dace
import pytest

from dacergnn import Config, parse, print_program
from dacergnn.config import PASSES
from dacergnn.errors import DacergnnError, ProgramError
from dacergnn.library_nodes import Traversal
from dacergnn.library_nodes.node import copied
from dacergnn.program import Program, verify
from dacergnn.runtime.lower import lower
from dacergnn.sdfg_passes import Context, GemmScaleFusion, Pipeline, SelectAdjacency, compile_program, differentiate
from dacergnn.viewer import write_sdfg
from tests.program import golden
from tests.program.golden import MODELS, PROGRAMS


def listing(sdfg: dace.SDFG) -> str:
    """The loops of a program, without its head and the comments."""
    lines = print_program(sdfg).splitlines()
    return "\n".join(line[4:] for line in lines[1:] if "#" not in line)


def fused(text: str) -> tuple[int, str]:
    sdfg = parse(text)
    count = GemmScaleFusion().run(sdfg, Context())
    verify(sdfg)
    sdfg.validate()
    assert GemmScaleFusion().run(sdfg, Context()) == 0, "a second run fires again"
    return count, listing(sdfg)


def test_product_is_summed_where_it_is_made() -> None:
    count, after = fused(
        """def p(g, x: NS[4], W: R[4, 2], norm: E):
    for e in g.edges():
        e["msg"] = linear(e.src.x, W[e.etype])
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["out"] += e.norm * e["msg"]
    return out
"""
    )
    assert count == 1
    assert (
        after
        == """for n in g.dst_nodes():
    for e in n.incoming_edges():
        n["out"] += e["norm"] * linear(e.src["x"], W[e.etype])
return out"""
    )


def test_scaled_rows_go_into_the_outer_product() -> None:
    count, after = fused(
        """def p(g, x: NS[4], y: ND[2], s: E):
    for e in g.edges():
        e["d"] = e.s * e.dst.y
        D[e.etype] += outer_prod(e.src.x, e["d"])
    return D
"""
    )
    assert count == 1
    assert after == 'for e in g.edges():\n    D[e.etype] += e["s"] * outer_prod(e.src["x"], e.dst["y"])\nreturn D'


@pytest.mark.parametrize(
    "text",
    [
        # The messages are a result themselves.
        'e["msg"] = linear(e.src.x, W[e.etype]); e.dst["out"] += e["msg"]; return out, msg',
        # Two readers would multiply twice.
        'e["msg"] = linear(e.src.x, W[e.etype]); e.dst["out"] += e["msg"]; e.src["back"] += e["msg"]; return out, back',
        # One value for each feature is no scale of a product.
        'e["msg"] = linear(e.src.x, W[e.etype]); e.dst["out"] += e["f"] * e["msg"]; return out',
        # A product is summed along edges, not over types.
        'e["msg"] = linear(e.src.x, W[e.etype]); out[e.etype] += e["msg"]; return out',
        # Not a sum.
        'e["msg"] = linear(e.src.x, W[e.etype]); e.dst["out"] = max(e.dst["out"], e["msg"]); return out',
        # Two scales.
        'e["msg"] = e["s"] * linear(e.src.x, W[e.etype]); e.dst["out"] += e["s"] * e["msg"]; return out',
    ],
)
def test_fusion_keeps_away(text: str) -> None:
    *loop, result = text.split("; ")
    body = "\n".join(f"        {line}" for line in loop)
    source = f"def p(g, x: NS[4], W: R[4, 2], s: E, f: E[2]):\n    for e in g.edges():\n{body}\n    {result}\n"
    before = listing(parse(source))
    assert fused(source) == (0, before)


def test_adjacency_connects_what_the_kernels_read() -> None:
    sdfg = parse(
        """def p(g, x: NS[4], W: R[4, 2]):
    for e in g.edges():
        e["m"] = linear(e.src.x, W[e.etype])
    for n in g.dst_nodes():
        for e in n.incoming_edges():
            n["out"] += e["m"]
    return out
"""
    )
    SelectAdjacency(index=dace.int64).run(sdfg, Context())
    verify(sdfg)
    sdfg.validate()
    product, total = Program(sdfg).operators
    assert product.encodings == ["ptr_E_etype", "idx_E_src"]
    assert total.encodings == ["ptr_E_dst", "ids_E_dst"]
    assert sdfg.arrays["ptr_E_etype"].dtype == dace.int64
    assert str(sdfg.arrays["ptr_E_etype"].shape[0]) == "R + 1"
    assert set(product.in_connectors) == {"_x", "_W", "_ptr_E_etype", "_idx_E_src"}


def schedules(sdfgs: Mapping[str, dace.SDFG]) -> list[object]:
    """Schedules of all traversals."""
    operators = (o for sdfg in sdfgs.values() for o in Program(sdfg).operators)
    return [o.schedule_by for o in operators if isinstance(o, Traversal)]


@pytest.mark.parametrize("model", MODELS)
def test_every_step_is_valid_and_survives_the_disk(model: str, tmp_path: Path) -> None:
    source, bindings = MODELS[model]
    plan = compile_program(parse(source, **bindings), ["x", *list(bindings)[1:3]], Config(), dace.int32)
    early, fusions = PASSES[:6], PASSES[6:]
    assert [s.name for s in plan.steps] == [
        *("frontend", *early, "differentiate", *early[1:], "cache_or_recompute", *fusions),
        *("select_schedule", "select_adjacency"),
    ]
    assert "edges" in schedules(plan.steps[-1].sdfgs) or model == "rgcn"
    for number, step in enumerate(plan.steps):
        for role, sdfg in step.sdfgs.items():
            if step.fired.get(role) == 0:  # the program of the step before
                continue
            sdfg.validate()
            path = tmp_path / f"{number}_{role}.sdfg"
            write_sdfg(sdfg, path)
            again = dace.SDFG.from_file(str(path))
            verify(again)
            again.validate()
            assert print_program(again) == print_program(sdfg)
            assert again.hash_sdfg() == sdfg.hash_sdfg()
            assert schedules({role: again}) == schedules({role: sdfg})
            if step is plan.steps[-1]:
                # DaCe orders the connectors anew, which only moves lines.
                one, other = lower(again), lower(sdfg)
                assert replace(one, code="") == replace(other, code="")
                assert sorted(one.code.splitlines()) == sorted(other.code.splitlines())


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_second_run_finds_nothing_to_do(name: str) -> None:
    """Of every pass over the forward and the backward, where the pipeline runs it."""
    pipeline = Pipeline.of(Config(), golden.learned(name))
    passes = {step.name: step for step in (*pipeline.forward, *pipeline.both)}
    seen: set[str] = set()
    for step in golden.plan(name).steps:
        if step.name == "differentiate":
            passes |= {step.name: step for step in pipeline.backward}
        for role, count in step.fired.items() if step.name in passes else ():
            seen.add(step.name)
            if count == 0:  # which was the first run on this program
                continue
            again = copied(step.sdfgs[role])
            fired = passes[step.name].run(again, Context(golden.LISTED[name].profile))
            assert not fired, f"{step.name} fires again on the {role}"
            assert print_program(again) == print_program(step.sdfgs[role]), f"{step.name} changes the {role} again"
    assert seen == passes.keys()


def test_a_pipeline_says_the_options_of_its_passes() -> None:
    hector = Pipeline.of(Config("hector"), ["x"])
    assert str(hector.forward) == (
        "(LinearOperatorReordering(merge_all=True), CompactMaterialization(sides=('srcpair',)), GemmScaleFusion())"
    )
    assert str(hector.backward) == "(GemmScaleFusion(),)"
    both = Pipeline.of(Config(caching="papers"), ["x"])
    assert str(both.forward[-1]) == "AggregationOrder(order='auto', wrt=('x',), caching='papers')"
    assert str(both.backward[-1]) == "AggregationOrder(order='auto', wrt=(), caching='cache_all')"
    assert str(both.caching) == "CacheOrRecompute(caching='papers', cache=(), recompute=())"
    given = Pipeline.of(Config(aggregation="aggregate_first"))
    assert "aggregation_order" not in [step.name for step in given.backward]  # gradients follow from the forward
    assert str(given.both) == (
        "(NarrowProducts(), GemmEpilogueFusion(), TraversalFusion(), SelectSchedule(), "
        "SelectAdjacency(adjacency='auto', index=int))"
    )


def test_passes_can_be_left_out() -> None:
    source, bindings = MODELS["rgcn"]
    sdfg = parse(source, **bindings)
    plan = compile_program(sdfg, [], Config(passes=()), dace.int32)
    assert [s.name for s in plan.steps] == ["frontend", "select_schedule", "select_adjacency"]
    assert listing(plan.forward) == listing(sdfg)
    assert plan.backward is None
    with pytest.raises(DacergnnError, match="there is no pass 'magic'"):
        Config(passes=("magic",))


def test_gradient_of_what_has_none() -> None:
    sdfg = parse("def p(g, x: NS[4], y: NS[4]):\n    for n in g.nodes():\n        n['z'] = detach(n.x)\n    return z\n")
    gradient = differentiate(sdfg, ["x", "y"])
    assert gradient.wrt == []
    assert gradient.saved == []
    plan = compile_program(sdfg, ["x"], Config(), dace.int32)
    assert plan.backward is None
    assert plan.wrt == []


def test_wrong_names_to_differentiate() -> None:
    sdfg = parse("def p(g, x: NS[4]):\n    for n in g.nodes():\n        n['z'] = n.x * n.x\n    return z\n")
    with pytest.raises(ProgramError) as caught:
        differentiate(sdfg, ["x", "w"])
    assert str(caught.value) == 'wrt: "w" is not an input of p; inputs: x.'
    named = parse("def p(g, grad_z: NS[4]):\n    for n in g.nodes():\n        n['z'] = n.grad_z\n    return z\n")
    with pytest.raises(ProgramError) as caught:
        differentiate(named, ["grad_z"])
    assert str(caught.value) == '"grad_z": names that start with grad_ are kept for gradients; rename the array.'


def test_saved_arrays_are_outputs_of_the_forward() -> None:
    text = """def p(g, x: NS[4], W: ONE[4, 4]):
    for n in g.nodes():
        n["h"] = tanh(linear(n.x, W))
        n["out"] = n["h"] * n["h"]
    return out
"""
    gradient = differentiate(parse(text), ["x", "W"])
    assert Program(gradient.forward).outputs == ["out", "h"]
    assert gradient.saved == ["h"]
    assert Program(gradient.backward).inputs == ["grad_out", "h", "W", "x"]
    only_weights = differentiate(parse(text), ["W"])
    assert Program(only_weights.backward).inputs == ["grad_out", "h", "x"]
