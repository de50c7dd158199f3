"""Measures the service: clients on this machine send random small graphs, one after the other.

    python load.py http://127.0.0.1:8080 --clients 16 --requests 5000

It prints requests per second, the median and the 99th percentile of the time from a request to its answer, and how many
requests ran as one in the mean.
"""

from __future__ import annotations

import argparse
import http.client
import json
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from wire import BINARY, Arrays, decode, encode


def random_graph(inputs: Sequence[Mapping[str, Any]], rng: np.random.Generator, nodes: int, edges: int) -> Arrays:
    """Returns random features of so many nodes of each type, and edges of each relation."""
    arrays: Arrays = {}
    for described in inputs:
        shape: list[int | str] = described["shape"]
        if shape[0] == 2 and described["dtype"].startswith("int"):
            arrays[described["name"]] = rng.integers(nodes, size=(2, edges)).astype(described["dtype"])
        else:
            sizes = [size if isinstance(size, int) else nodes for size in shape]
            arrays[described["name"]] = rng.standard_normal(sizes).astype(described["dtype"])
    return arrays


class Client:
    """Represents a connection to the service."""

    def __init__(self, address: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)

    def health(self) -> dict[str, Any]:
        """Returns what the service tells of itself."""
        self._connection.request("GET", "/health")
        return json.loads(self._connection.getresponse().read())

    def run(self, arrays: Arrays) -> Arrays:
        """Returns the results of a call; raises RuntimeError with the answer if it is an error."""
        self._connection.request("POST", "/run", encode(arrays, BINARY), {"Content-Type": BINARY})
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{answer.status}: {body.decode(errors='replace')}")
        return decode(body, BINARY, [])

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()


def load(address: str, clients: int, requests: int, nodes: int, edges: int) -> dict[str, float]:
    """Returns the measures of a number of requests, by name."""
    first = Client(address)
    before = first.health()
    seconds: list[float] = []
    errors: list[Exception] = []

    def send(seed: int, count: int) -> None:
        client, rng = Client(address), np.random.default_rng(seed)
        graphs = [random_graph(before["inputs"], rng, nodes, edges) for _ in range(min(count, 20))]
        try:
            for i in range(count):
                started = time.perf_counter()
                client.run(graphs[i % len(graphs)])
                seconds.append(time.perf_counter() - started)
        except Exception as error:
            errors.append(error)
        finally:
            client.close()

    shares = [requests // clients + (i < requests % clients) for i in range(clients)]
    threads = [threading.Thread(target=send, args=share) for share in enumerate(shares)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    whole = time.perf_counter() - started
    if errors:
        raise errors[0]
    after = first.health()
    first.close()
    median, rare = np.percentile(seconds, [50, 99])
    return {
        "requests_per_s": requests / whole, "p50_ms": 1000 * float(median), "p99_ms": 1000 * float(rare),
        "requests_per_batch": (after["requests"] - before["requests"]) / (after["batches"] - before["batches"]),
    }  # fmt: skip


def main() -> None:
    """Prints the measures."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("address")
    options.add_argument("--clients", type=int, default=16)
    options.add_argument("--requests", type=int, default=5000)
    options.add_argument("--nodes", type=int, default=20, help="of each type, in each request")
    options.add_argument("--edges", type=int, default=60, help="of each relation, in each request")
    chosen = options.parse_args()
    for name, value in load(chosen.address, chosen.clients, chosen.requests, chosen.nodes, chosen.edges).items():
        print(f"{name} {value:.2f}")


if __name__ == "__main__":
    main()
