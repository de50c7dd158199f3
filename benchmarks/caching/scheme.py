"""Defines schemes: the named ways to compile a layer that the suite compares."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dacergnn.config import Config
from dacergnn.errors import DacergnnError

NAMED: dict[str, dict[str, str]] = {
    "gat": {
        "nothing": "recompute_all",
        "features": "recompute_all+cache:features",
        "node attention": "recompute_all+cache:features+cache:score_src+cache:score_dst",
        "edge weights": "recompute_all+cache:features+cache:att+cache:score",
    },
}
"""Schemes of single models by name, in the notation of `parse`. They are from table 3 of Cached Operator Reordering;
its mask of a LeakyReLU is the sign of a score here."""


@dataclass(frozen=True)
class Scheme:
    """Describes what is saved for the backward, the sparse format of loops, and the order of a product and a sum."""

    label: str
    caching: str = "cache_all"
    cache: tuple[str, ...] = ()
    recompute: tuple[str, ...] = ()
    adjacency: str = "auto"
    order: str = "auto"

    @property
    def config(self) -> Config:
        """Returns the config that compiles layers by this scheme."""
        return Config(
            caching=self.caching,
            cache=self.cache,
            recompute=self.recompute,
            adjacency=self.adjacency,
            aggregation=self.order,
        )


def expand(texts: tuple[str, ...], model: str) -> list[Scheme]:
    """Returns the schemes of several texts for a model; "named" stands for all its schemes in `NAMED`."""
    schemes: list[Scheme] = []
    for text in texts:
        schemes += [parse(name, model) for name in ([*NAMED.get(model, {})] if text == "named" else [text])]
    return schemes


def parse(text: str, model: str = "") -> Scheme:
    """Returns the scheme of ``[LABEL=]STRATEGY{+cache:NAME|+recompute:NAME}``, or of a name in `NAMED`.

    Examples: ``auto``, ``budget:2e6``, ``features=recompute_all+cache:features``.

    Raises:
        DacergnnError: The text is no scheme.
    """
    if text in NAMED.get(model, {}):
        return replace(parse(NAMED[model][text]), label=text)
    label, _, body = text.rpartition("=")
    caching, *parts = body.split("+")
    names: dict[str, tuple[str, ...]] = {"cache": (), "recompute": ()}
    for part in parts:
        kind, _, name = part.partition(":")
        if kind not in names or not name:
            raise DacergnnError(f"strategy '{text}': '{part}' is neither cache:NAME nor recompute:NAME")
        names[kind] += (name,)
    scheme = Scheme(label or text, caching, names["cache"], names["recompute"])
    try:
        _ = scheme.config
    except DacergnnError as error:
        raise DacergnnError(f"strategy '{text}': {error}") from error
    return scheme
