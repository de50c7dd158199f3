"""What memory an operator touches on a graph: bytes, lines and tables against caches, and what is allocated for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from dacergnn.cost import CACHE_BYTES, LINE, Work
from dacergnn.tuning.operations import ROWS, row_kind

CACHES = {"L1": 32 << 10, "L2": 1 << 20, "L3": CACHE_BYTES}
"""Bytes of the caches of a server's core, and of what stays in the one that cores share."""
PAGE_BYTES = 4096
_WAYS = ("streamed", "gathered", "scattered")
COUNTS = (
    "index_bytes", *(f"{rows}_{way}_bytes" for rows in ROWS for way in _WAYS), "lines", "gathered_lines", "reuse",
    "largest_table", "tables", *(f"tables_per_{cache}" for cache in CACHES), "read_bytes", "written_bytes",
    "allocated", "allocated_pages", "returned",
)  # fmt: skip
"""Bytes by the kind of rows and the way to them; unique lines; visits of a row that is not streamed; bytes of the
tables whose rows are; what is written to arrays of the program, and to those of its caller."""
SHARES = tuple(f"fits_{cache}" for cache in CACHES)
"""Tells whether a cache holds those tables."""


def counts(works: Sequence[Work], transient: Collection[str], sizes: Mapping[str, int]) -> dict[str, float]:
    """Features by `COUNTS`; ``transient`` are the arrays that the program allocates."""
    features: Counter[str] = Counter(dict.fromkeys(COUNTS, 0))
    unique = touched = 0
    for work in works:
        for access in work.accesses:
            visits, table = sizes[access.visits], sizes[access.table]
            streamed = access.way == "streamed"
            rows, reached = (table, table) if streamed else (visits, min(visits, table))
            kind = row_kind(access.table if streamed else access.visits)
            moved, size = rows * access.width, table * access.width
            features[f"{kind}_{access.way}_bytes"] += moved
            features["index_bytes"] += access.index_bytes(sizes)
            if streamed:
                features["lines"] += -(-size // LINE)
            else:  # rows share no lines with their neighbours
                lines = reached * -(-access.width // LINE)
                features.update(lines=lines, gathered_lines=lines, tables=size)
                features["largest_table"] = max(features["largest_table"], size)
                unique += reached * access.width
                touched += moved
            if access.ref == work.statement.target:
                features["written_bytes"] += moved
                features["allocated" if access.ref.name in transient else "returned"] += size
            else:
                features["read_bytes"] += moved
    features["allocated_pages"] = -(-features["allocated"] // PAGE_BYTES)
    per_cache = {f"tables_per_{cache}": features["tables"] / room for cache, room in CACHES.items()}
    return {**features, **per_cache, "reuse": touched / max(unique, 1)}


def fits(features: Mapping[str, float]) -> dict[str, float]:
    """Features by `SHARES`, given those by `COUNTS`."""
    return {f"fits_{cache}": float(features["tables"] <= room) for cache, room in CACHES.items()}
