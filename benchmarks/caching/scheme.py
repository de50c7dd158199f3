"""Reads schemes: the named ways to compile a layer that the suite compares."""

from __future__ import annotations

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


def expand(texts: tuple[str, ...], model: str) -> dict[str, Config]:
    """Returns configs by label for a model; "named" stands for all its schemes in `NAMED`."""
    names = [name for text in texts for name in ([*NAMED.get(model, {})] if text == "named" else [text])]
    return dict(parse(name, model) for name in names)


def parse(text: str, model: str = "") -> tuple[str, Config]:
    """Returns label and config of ``[LABEL=]STRATEGY{+cache:NAME|+recompute:NAME}``, or of a name in `NAMED`.

    Examples: ``auto``, ``budget:2e6``, ``features=recompute_all+cache:features``.

    Raises:
        DacergnnError: The text is no scheme.
    """
    if text in NAMED.get(model, {}):
        return text, parse(NAMED[model][text])[1]
    label, _, body = text.rpartition("=")
    caching, *parts = body.split("+")
    names: dict[str, tuple[str, ...]] = {"cache": (), "recompute": ()}
    for part in parts:
        kind, _, name = part.partition(":")
        if kind not in names or not name:
            raise DacergnnError(f"strategy '{text}': '{part}' is neither cache:NAME nor recompute:NAME")
        names[kind] += (name,)
    try:
        return label or text, Config(caching=caching, cache=names["cache"], recompute=names["recompute"])
    except DacergnnError as error:
        raise DacergnnError(f"strategy '{text}': {error}") from error
