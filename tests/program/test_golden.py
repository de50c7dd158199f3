"""Listings of RGCN, RGAT and HGT after every pass, as whole texts; ``pytest --update-golden`` writes them anew."""

from __future__ import annotations

import pytest

from dacergnn import parse, print_program
from tests.program.golden import FOLDER, MODELS, listings


@pytest.mark.parametrize("model", MODELS)
def test_listings(model: str, request: pytest.FixtureRequest) -> None:
    found = listings(model)
    kept = {path.name: path.read_text() for path in sorted(FOLDER.glob(f"{model}_*.txt"))}
    if request.config.getoption("--update-golden"):
        FOLDER.mkdir(exist_ok=True)
        for name in kept.keys() - found.keys():
            (FOLDER / name).unlink()
        for name, text in found.items():
            (FOLDER / name).write_text(text)
        kept = found
    assert sorted(found) == sorted(kept)
    for name, text in found.items():
        assert text == kept[name], name


@pytest.mark.parametrize("model", MODELS)
def test_listings_parse_back(model: str) -> None:
    for name, text in listings(model).items():
        comments = [line for line in text.splitlines() if "#" not in line]
        again = [line for line in print_program(parse(text)).splitlines() if "#" not in line]
        assert again == comments, name


def test_three_models_fit_on_a_page() -> None:
    """At most 51 lines for the three, as Hector counts them."""
    import inspect

    from dacergnn.frontends import programs

    lines = inspect.getsource(programs).split("def edge_softmax")[1].splitlines()
    assert len([line for line in lines if line.strip()]) <= 51
