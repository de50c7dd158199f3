"""Settings that cannot be meant, a row for each field and kind of value, and the sizes that people write."""

from __future__ import annotations

from typing import Any

import pytest

from dacergnn import Config, Rates
from dacergnn.config import ADJACENCIES, AGGREGATIONS, PASSES, TUNINGS, budget_of, ell_slots
from dacergnn.errors import DacergnnError
from dacergnn.target import TARGETS

CACHING = "cache_all, recompute_all, papers, auto, budget:BYTES, as in budget:500MB."
FORMATS = f"{', '.join(ADJACENCIES)} and ell:SLOTS."
ARCHITECTURES = "pass compute capabilities without the dot, 80 or more, as in (80, 90)."
RATES = "pass what the machine does in a second."
BAD: list[tuple[dict[str, Any], str]] = [
    ({"level": ["O2"]}, "level=['O2'] is not one of O0, hector, O2."),
    ({"level": 2}, "level=2 is not one of O0, hector, O2."),
    ({"level": None}, "level=None is not one of O0, hector, O2."),
    ({"passes": 5}, "passes=5 is a int; pass a tuple of names."),
    ({"passes": True}, "passes=True is a bool; pass a tuple of names."),
    ({"passes": ("canonical_form", 3)}, "passes=('canonical_form', 3) holds 3; names are strings."),
    ({"passes": ["fuse"]}, f"passes=('fuse',): there is no pass 'fuse'; passes: {', '.join(PASSES)}."),
    ({"implementation": ["cpu"]}, f"implementation=['cpu'] is not one of {', '.join(TARGETS)}."),
    ({"implementation": 1}, f"implementation=1 is not one of {', '.join(TARGETS)}."),
    ({"cuda_arch": 80}, f"cuda_arch=80: {ARCHITECTURES}"),
    ({"cuda_arch": "80"}, f"cuda_arch='80': {ARCHITECTURES}"),
    ({"cuda_arch": (8.0,)}, f"cuda_arch=(8.0,): {ARCHITECTURES}"),
    ({"cuda_arch": ()}, f"cuda_arch=(): {ARCHITECTURES}"),
    ({"rates": 1e9}, "rates=1000000000.0 is a float; pass dacergnn.Rates(...)."),
    ({"plan": {"a": "b"}}, "plan={'a': 'b'} is a dict; pass a dacergnn.Plan."),
    ({"cuda_graph": "yes"}, "cuda_graph='yes'; pass True or False."),
    ({"cuda_graph": None}, "cuda_graph=None; pass True or False."),
    ({"caching": None}, f"caching=None is not one of {CACHING}"),
    ({"caching": 500}, f"caching=500 is not one of {CACHING}"),
    ({"caching": "budget:inf"}, f"caching='budget:inf' is not one of {CACHING}"),
    ({"caching": "budget:1e999"}, f"caching='budget:1e999' is not one of {CACHING}"),
    ({"caching": "budget:-1MB"}, f"caching='budget:-1MB' is not one of {CACHING}"),
    ({"caching": "budget:5 apples"}, f"caching='budget:5 apples' is not one of {CACHING}"),
    ({"caching": "budget:MB"}, f"caching='budget:MB' is not one of {CACHING}"),
    ({"cache": 5}, "cache=5 is a int; pass a tuple of names."),
    ({"cache": None}, "cache=None is a NoneType; pass a tuple of names."),
    ({"cache": (1, 2)}, "cache=(1, 2) holds 1; names are strings."),
    ({"recompute": None}, "recompute=None is a NoneType; pass a tuple of names."),
    ({"recompute": "att"}, "recompute='att' is a string; pass a tuple of names of arrays."),
    ({"recompute": [["att"]]}, "recompute=(['att'],) holds ['att']; names are strings."),
    ({"aggregation": None}, f"aggregation=None is not one of {', '.join(AGGREGATIONS)}."),
    ({"aggregation": {"auto"}}, f"aggregation={{'auto'}} is not one of {', '.join(AGGREGATIONS)}."),
    ({"adjacency": None}, f"adjacency=None is not one of {FORMATS}"),
    ({"adjacency": ["csr"]}, f"adjacency=['csr'] is not one of {FORMATS}"),
    ({"adjacency": "ell:inf"}, f"adjacency='ell:inf' is not one of {FORMATS}"),
    ({"adjacency": "ell:nan"}, f"adjacency='ell:nan' is not one of {FORMATS}"),
    ({"adjacency": "ell:0.5"}, f"adjacency='ell:0.5' is not one of {FORMATS}"),
    ({"tune": False}, f"tune=False is not one of {', '.join(TUNINGS)}."),
    ({"tune": ["off"]}, f"tune=['off'] is not one of {', '.join(TUNINGS)}."),
]  # fmt: skip


@pytest.mark.parametrize(("given", "message"), BAD, ids=[str(row[0]) for row in BAD])
def test_bad_settings(given: dict[str, Any], message: str) -> None:
    with pytest.raises(DacergnnError) as caught:
        Config(**given)
    assert str(caught.value) == message


@pytest.mark.parametrize("value", ["fast", None, True, 0, -1.0, float("nan"), float("inf"), [1.0]])
def test_bad_rates(value: Any) -> None:
    with pytest.raises(DacergnnError, match=r"^rates: streamed=.*; pass what the machine does in a second\.$"):
        Rates(1.0, value, 1.0, 1.0)


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("0", 0), ("1000", 1000), ("2e6", 2e6), ("1.5e+3", 1500), ("7B", 7), ("3kB", 3000), ("500MB", 5e8),
        ("500 MB", 5e8), (" 500mb", 5e8), ("1GB", 1e9), ("2.5TB", 2.5e12), ("4KiB", 4096), ("1.5GiB", 1.5 * 2**30),
        ("1e3MiB", 1e3 * 2**20), ("1TiB", 2**40),
    ],
)  # fmt: skip
def test_sizes_as_people_write_them(written: str, size: float) -> None:
    assert budget_of(Config(caching=f"budget:{written}").caching) == size


def test_slots() -> None:
    assert [ell_slots(a) for a in ("ell", "ell:8", "ell:1.5", "csr", "ell:", "hybrid:8")] == [
        4,
        8,
        1.5,
        None,
        None,
        None,
    ]


def test_series_of_names_become_tuples_so_that_equal_settings_share_a_build() -> None:
    given = Config(passes=["narrow_products"], cache=["a"], recompute=(n for n in "bc"), cuda_arch=[80, 90])  # type: ignore[arg-type]
    same = Config(passes=("narrow_products",), cache=("a",), recompute=("b", "c"), cuda_arch=(80, 90))
    assert given == same
    assert hash(given) == hash(same)
