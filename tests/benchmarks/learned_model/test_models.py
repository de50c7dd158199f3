"""Performance models: they learn a law of times and no noise, and a trained one is the same without torch."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.learned_model.batch import Batch
from benchmarks.learned_model.contenders import calibrated, predictor
from benchmarks.learned_model.network import GraphNetwork
from benchmarks.learned_model.terms import TermNetwork
from benchmarks.learned_model.training import Network, Trained, ranking_error, relative_error, train, weights
from benchmarks.learned_model.trees import Trees
from dacergnn.errors import DacergnnError
from dacergnn.tuning.features import FEATURE_NAMES, ProgramFeatures
from dacergnn.tuning.predictor import Analytic, Model, Predictor
from dacergnn.tuning.samples import Sample, joined
from dacergnn.tuning.terms import terms

A, B = ("a", "here"), ("a", "there")
TERM = FEATURE_NAMES[1].index("flops_ns")
TILES = FEATURE_NAMES[1].index("tiles")
FACTOR = FEATURE_NAMES[0].index("product")


def program(seed: int) -> ProgramFeatures:
    """Operators in a row, each 0.1 to 10 ms by its cost, some of which are products."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 9))
    invariant, dependent = (np.zeros((count, len(names)), np.float32) for names in FEATURE_NAMES)
    invariant[:, FACTOR] = rng.integers(2, size=count)
    dependent[:, :5] = rng.normal(size=(count, 5))  # of no use
    seconds = np.exp(rng.uniform(np.log(1e-4), np.log(1e-2), count)).astype(np.float32)
    dependent[:, TERM] = np.log1p(1e9 * seconds)
    edges = np.array([(n, n + 1) for n in range(count - 1)], np.int64)
    return ProgramFeatures(invariant, dependent, edges, seconds)


def law(found: ProgramFeatures) -> float:
    """Products take four times as long as their cost says, other operators a half."""
    return float((found.seconds * np.where(found.invariant[:, FACTOR] > 0, 4.0, 0.5)).sum())


def law_of_all(found: ProgramFeatures) -> float:
    """Each product slows all of the program down."""
    return float(found.seconds.sum() * np.exp(0.4 * (found.invariant[:, FACTOR].sum() - 2)))


Law = Callable[[ProgramFeatures], float]


@lru_cache
def samples(start: int = 0, count: int = 300, law: Law = law) -> tuple[Sample, ...]:
    programs = [program(seed) for seed in range(start, start + count)]
    return tuple(Sample(p, law(p), 0.05 * law(p), f"layer{n // 2}", "graph") for n, p in enumerate(programs))


def r2(model: Model, held: Sequence[Sample]) -> float:
    """Of the logarithm of measured over analytic time, which the analytic cost knows nothing of."""
    programs = [s.program for s in held]
    analytic = Analytic().predict(programs)
    actual = np.log([s.seconds for s in held] / analytic)
    found = np.log(model.predict(programs) / analytic)
    return float(1 - ((found - actual) ** 2).sum() / ((actual - actual.mean()) ** 2).sum())


def shuffled(given: Sequence[Sample]) -> list[Sample]:
    """The ratios to the analytic cost, of other programs."""
    ratios = np.random.default_rng(0).permutation([s.seconds / s.program.seconds.sum() for s in given])
    times = [float(ratio * s.program.seconds.sum()) for s, ratio in zip(given, ratios, strict=True)]
    return [dataclasses.replace(s, seconds=t, deviation=0.05 * t) for s, t in zip(given, times, strict=True)]


@lru_cache
def trained(make: Network, law: Law = law, noise: bool = False, epochs: int = 40) -> Trained:
    given = samples(law=law)
    return train(make, shuffled(given) if noise else given, seed=1, epochs=epochs)


POOLED, DEEP = partial(GraphNetwork, pooled=True), partial(GraphNetwork, depth=2)


@pytest.mark.parametrize(("make", "law"), [(GraphNetwork, law), (POOLED, law_of_all), (TermNetwork, law)])
def test_networks_learn_a_law_and_no_noise(make: Network, law: Law) -> None:
    held = samples(10_000, 100, law)
    model = trained(make, law)
    assert r2(model, held) > 0.5
    assert model.losses[-1] < 0.5 * model.losses[0]
    assert r2(trained(make, law, noise=True), held) < 0.3


def test_trees_learn_a_law_and_no_noise() -> None:
    held = samples(10_000, 100)
    model = Trees(samples(), rounds=50)
    assert r2(model, held) > 0.4
    assert r2(Trees(shuffled(samples()), rounds=50), held) < 0.2
    assert model.predict([]).shape == (0,)


def test_the_analytic_model_adds_up_operators() -> None:
    found = program(3)
    assert Analytic().predict([found, found]) == pytest.approx([found.seconds.sum()] * 2)


def test_the_analytic_model_can_be_calibrated() -> None:
    given = samples(count=20, law=lambda program: 3 * float(program.seconds.sum(dtype=np.float64)))
    assert calibrated(given).predict([given[0].program]) == pytest.approx([given[0].seconds])


@pytest.mark.parametrize("make", [GraphNetwork, POOLED, TermNetwork])
def test_networks_start_at_half_of_the_terms(make: Network) -> None:
    programs = [program(seed) for seed in range(4)]
    batch = Batch.of(programs)
    expected = [float(terms(p.dependent).sum()) / 2 for p in programs]
    assert make(batch).eval()(batch).detach().numpy() == pytest.approx(expected, rel=1e-5)


def test_terms_are_seconds() -> None:
    found = program(0)
    ones = found.dependent[:1] * 0
    ones[0, [TERM, TILES]] = np.log1p([5e6, 300])  # 5 ms, and 300 tiles of 10 ns
    assert terms(ones).sum() == pytest.approx(5e-3 + 3e-6 + 1e-6)  # and the start


def test_training_is_repeated_exactly() -> None:
    few = samples()[:40]
    first, second = (train(GraphNetwork, few, seed=3, epochs=2) for _ in range(2))
    assert first.losses == second.losses
    assert first.validation == second.validation
    assert train(GraphNetwork, few, seed=4, epochs=2).losses != first.losses


def test_programs_do_not_depend_on_their_batch() -> None:
    model, programs = trained(GraphNetwork), [program(seed) for seed in range(20, 26)]
    alone = [float(model.predict([p])[0]) for p in programs]
    assert model.predict(programs) == pytest.approx(alone, rel=1e-4)
    assert model.predict([]).shape == (0,)


def test_edges_tell_which_operators_meet() -> None:
    model, found = trained(DEEP, epochs=2), program(20)
    apart = dataclasses.replace(found, edges=found.edges[:0])
    assert model.predict([apart]) != pytest.approx(model.predict([found]), rel=1e-4)


def test_a_trained_network_is_the_same_in_numpy(tmp_path: Path) -> None:
    model, programs = trained(GraphNetwork, epochs=2), [program(seed) for seed in range(500, 530)]
    predictor([model]).save(tmp_path / "model.npz")
    found = Predictor.load(tmp_path / "model.npz")
    assert found.predict(programs) == pytest.approx(model.predict(programs), rel=1e-4)
    assert found.predict([]).shape == (0,)


def test_several_networks_predict_their_geometric_mean(tmp_path: Path) -> None:
    programs = [program(seed) for seed in range(5)]
    networks = [train(GraphNetwork, samples()[:40], seed=seed, epochs=2) for seed in range(2)]
    predictor(networks).save(tmp_path / "model.npz")
    one, other = (n.predict(programs) for n in networks)
    assert Predictor.load(tmp_path / "model.npz").predict(programs) == pytest.approx(np.sqrt(one * other), rel=1e-4)
    assert one != pytest.approx(other, rel=1e-3)


def test_weights_of_other_features_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "old.npz"
    np.savez(path, features=np.array(["a", "b"]))
    with pytest.raises(DacergnnError, match=re.escape(f"{path}: its model knows other features")):
        Predictor.load(path)


@pytest.mark.parametrize("more", [{"pooled": np.array(True)}, {"convolution0_weight": np.zeros((1, 2, 2))}])
def test_networks_of_other_forms_are_refused(more: dict[str, Any], tmp_path: Path) -> None:
    """Earlier versions saved such networks, whose other weights go by the same names."""
    path = tmp_path / "model.npz"
    predictor([trained(GraphNetwork, epochs=2)]).save(path)
    arrays: dict[str, Any] = {**np.load(path), "pooled": np.array(False)}
    np.savez(path, **arrays)
    assert Predictor.load(path).members
    np.savez(path, **arrays | more)
    with pytest.raises(DacergnnError, match="train it anew"):
        Predictor.load(path)


def test_batches_are_block_diagonal() -> None:
    first, second = program(0), program(1)
    both, count = joined([first, second]), len(first.seconds)
    assert both.owner.tolist() == [0] * count + [1] * len(second.seconds)
    assert both.edges[len(first.edges) :].tolist() == (second.edges + count).tolist()
    assert Batch.of([first, second]).graph.size("E") == 2 * len(both.edges) + len(both.owner)


def test_fast_programs_and_sure_times_count_most() -> None:
    some = program(0)
    given = [Sample(some, 1.0, 0.1, *A), Sample(some, 2.0, 0.2, *A), Sample(some, 4.0, 1.6, *B)]
    found = weights(given)
    assert found == pytest.approx(np.array([10, 5, 2.5]) / 17.5 * 3)
    sure, noisy = weights([Sample(some, 1.0, 0.0, *A), Sample(some, 1.0, 9.0, *B)])
    assert sure / noisy == pytest.approx(0.5 / 0.02)


def test_the_loss_is_the_relative_error() -> None:
    predicted, measured = torch.tensor([1.0, 3.0]), torch.tensor([2.0, 2.0])
    assert float(relative_error(predicted, measured, torch.tensor([1.0, 2.0]))) == pytest.approx((0.5 + 1.0) / 2)


def test_errors_that_a_group_has_in_common_do_not_change_its_order() -> None:
    measured, group = torch.tensor([1.0, 2.0, 1.0, 4.0]), torch.tensor([0, 0, 1, 1])
    assert float(ranking_error(torch.tensor([3.0, 6.0, 0.5, 2.0]), measured, group)) == pytest.approx(0, abs=1e-6)
    assert float(ranking_error(torch.tensor([1.0, 2.0, 2.0, 2.0]), measured, group)) == pytest.approx(np.log(2) / 2)


def test_samples_to_learn_from_are_checked() -> None:
    some = program(0)
    with pytest.raises(DacergnnError, match="samples: 1 of them are too few"):
        train(TermNetwork, [Sample(some, 1.0, 0.1, *A)])
    with pytest.raises(DacergnnError, match=r"samples: 'a' on 'here' took 0\.0 s"):
        train(TermNetwork, [Sample(some, 0.0, 0.1, *A)])
