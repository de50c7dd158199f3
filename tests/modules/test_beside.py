"""Layers inside of layers differentiate in threads of their own, so that none waits for itself."""

from __future__ import annotations

import threading

import torch

from dacergnn.modules.beside import beside


def test_what_runs_beside_may_run_something_beside() -> None:
    cpu, found = torch.device("cpu"), list[int]()

    def outer() -> None:
        found.append(beside(lambda: beside(lambda: threading.get_ident(), cpu), cpu))

    thread = threading.Thread(target=outer, daemon=True)
    thread.start()
    thread.join(timeout=60)
    assert found
    assert found[0] != thread.ident
