"""Models that predict the time of programs; they are trained elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from scipy.sparse import csr_array

from dacergnn.errors import DacergnnError
from dacergnn.tuning.features import FEATURE_NAMES, THREADS, ProgramFeatures
from dacergnn.tuning.samples import Joined, joined
from dacergnn.tuning.terms import terms

Array = np.ndarray[Any, Any]
SCALE = "scale"
"""Name of the array of factors for the terms of a network that is fitted to a machine; others have none."""


WEIGHTS = (
    *(f"{kind}_{name}" for kind in ("invariant", "dependent") for name in ("mean", "scale", "weight", "bias")),
    "readout_weight", "readout_bias",
)  # fmt: skip
"""Names of the arrays of a trained network; `Predictor.save` stacks the arrays of several networks."""


class Model(Protocol):
    """Predicts the time of programs, from features for a number of threads."""

    @property
    def threads(self) -> int:
        """Returns the number of threads that features are computed for."""
        ...

    def predict(self, programs: Sequence[ProgramFeatures]) -> Array:
        """Returns the seconds of each program: float64, positive."""
        ...

    def logarithms(self, programs: Sequence[ProgramFeatures]) -> Array:
        """Returns the logarithms of the seconds by each member of an ensemble: float64 [members, programs]."""
        ...


def least_gains(model: Model, start: ProgramFeatures, others: Sequence[ProgramFeatures]) -> Array:
    """Returns for each program what it gains over another one at least, by a model: float64.

    A gain is the difference of the logarithms of the seconds. The least is the mean over the members of the model, less
    one standard deviation: members that disagree do not count as a gain.
    """
    logs = model.logarithms([start, *others])
    gains = logs[:, :1] - logs[:, 1:]
    return gains.mean(axis=0) - gains.std(axis=0)


@dataclass(frozen=True)
class Analytic:
    """Predicts the sum of the operators' analytic seconds, times a factor for the machine."""

    factor: float = 1.0
    threads: int = THREADS

    def predict(self, programs: Sequence[ProgramFeatures]) -> Array:
        """Returns the seconds of each program."""
        return self.factor * np.array([p.seconds.sum(dtype=np.float64) for p in programs])

    def logarithms(self, programs: Sequence[ProgramFeatures]) -> Array:
        """Returns the logarithms of the seconds: [1, programs]."""
        return np.log(self.predict(programs))[None]


@dataclass(frozen=True)
class Predictor:
    """Holds trained networks, which read coefficients of terms from the features of each operator.

    The prediction is the geometric mean of the networks' predictions.

    Args:
        members: The weights of each network, float32, by name (`WEIGHTS`).
        threads: Number of threads of the programs that the networks have learned from.
    """

    members: tuple[Mapping[str, Array], ...]
    threads: int = THREADS

    @classmethod
    def load(cls, path: Path) -> Predictor:
        """Returns the predictor that `save` wrote.

        Raises:
            DacergnnError: The file is of another version, which had other weights or features.
        """
        with np.load(path) as file:
            names = tuple(str(name) for name in file.get("features", ()))
            known = {*WEIGHTS, SCALE, "features", "threads", "pooled"}
            if names != (*FEATURE_NAMES[0], *FEATURE_NAMES[1]) or not {*WEIGHTS} <= {*file.files} <= known:
                raise DacergnnError(f"{path}: its model knows other features than this version; train it anew.")
            if file.get("pooled"):  # of an earlier version, which had networks of several forms
                raise DacergnnError(f"{path}: its model has another form than in this version; train it anew.")
            stacked = {name: file[name] for name in (*WEIGHTS, SCALE) if name in file}
            count = len(stacked["readout_bias"])
            members = tuple({name: array[n] for name, array in stacked.items()} for n in range(count))
            return cls(members, int(file.get("threads", THREADS)))

    def save(self, path: Path) -> None:
        """Writes all weights, and the names of the features that they are for, to one .npz file."""
        with path.open("wb") as file:
            names = np.array([*FEATURE_NAMES[0], *FEATURE_NAMES[1]])
            stacked = {name: np.stack([weights[name] for weights in self.members]) for name in self.members[0]}
            threads = np.array(self.threads)
            np.savez_compressed(file, allow_pickle=False, **stacked, features=names, threads=threads)

    def predict(self, programs: Sequence[ProgramFeatures]) -> Array:
        """Returns the seconds of each program."""
        return np.exp(np.mean(self.logarithms(programs), axis=0)) if programs else np.zeros(0)

    def parts(self, programs: Sequence[ProgramFeatures]) -> Array:
        """Returns the seconds that each term takes of each program, by each network: [networks, programs, terms]."""
        batch = joined(programs)
        sums = _sums(batch)
        return np.stack([_parts(weights, batch, sums) for weights in self.members])

    def scaled(self, factors: Array) -> Predictor:
        """Returns the networks with other rates: ``factors`` [networks, terms] multiply the seconds of each term."""
        members = [
            {**own, SCALE: (own.get(SCALE, 1.0) * factor).astype(np.float32)}
            for own, factor in zip(self.members, factors, strict=True)
        ]
        return Predictor(tuple(members), self.threads)

    def logarithms(self, programs: Sequence[ProgramFeatures]) -> Array:
        """Returns the logarithm of the seconds of each program, by each network: float64 [networks, programs]."""
        return np.log(self.parts(programs).sum(axis=2))


def _parts(w: Mapping[str, Array], batch: Joined, sums: csr_array) -> Array:
    """Returns the seconds of each term: [programs, terms]."""
    kinds = (("invariant", batch.invariant), ("dependent", batch.dependent))
    read = np.maximum(np.concatenate([_embedded(w, kind, values) for kind, values in kinds], axis=1), 0)
    coefficients = np.logaddexp(0, read @ w["readout_weight"] + w["readout_bias"])  # positive
    return sums @ (coefficients * terms(batch.dependent).astype(np.float64) * w.get(SCALE, np.float32(1)))


def _embedded(w: Mapping[str, Array], kind: str, values: Array) -> Array:
    mean, scale, weight, bias = (w[f"{kind}_{name}"] for name in ("mean", "scale", "weight", "bias"))
    return (values - mean) / scale @ weight + bias


def _sums(batch: Joined) -> csr_array:
    """Returns the matrix [programs, operators] that sums rows over the operators of each program."""
    count = len(batch.owner)
    return csr_array((np.ones(count, np.float32), (batch.owner, np.arange(count))), shape=(batch.count, count))
