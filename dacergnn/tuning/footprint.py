"""Counts the memory that an operator uses on a graph: bytes, cache lines, tables against caches, and allocations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from dacergnn.cost import CACHE_BYTES, LINE, Work
from dacergnn.tuning.operations import ROWS, row_kind

CACHES = {"L1": 32 << 10, "L2": 1 << 20, "L3": CACHE_BYTES}
"""Bytes of the caches of a server's core, and of data that stay in the cache that cores share."""
PAGE_BYTES = 4096
_WAYS = ("streamed", "gathered", "scattered")
COUNTS = (
    "index_bytes", *(f"{rows}_{way}_bytes" for rows in ROWS for way in _WAYS), "lines", "gathered_lines", "reuse",
    "largest_table", "tables", *(f"tables_per_{cache}" for cache in CACHES), "read_bytes", "written_bytes",
    "allocated", "allocated_pages", "returned",
)  # fmt: skip
"""Names of features: bytes by kind of rows and way of access, unique cache lines, mean visits of a row that is not
streamed, bytes of the tables of such rows, bytes read and written, and bytes of arrays that the program allocates
(`allocated`) or its caller does (`returned`)."""
SHARES = tuple(f"fits_{cache}" for cache in CACHES)
"""Names of features: whether each cache holds the tables."""


def counts(works: Sequence[Work], transient: Collection[str], sizes: Mapping[str, int]) -> dict[str, float]:
    """Returns features by `COUNTS`; ``transient`` names the arrays that the program allocates."""
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
    """Returns features by `SHARES`; ``features`` are those by `COUNTS`."""
    return {f"fits_{cache}": float(features["tables"] <= room) for cache, room in CACHES.items()}
