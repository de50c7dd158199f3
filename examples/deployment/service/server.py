"""Serves an exported model over HTTP, with Python's standard library and NumPy.

    python server.py FOLDER --port 8080

FOLDER is the one that `dacergnn.export` has written to. ``POST /run`` takes the arguments of a call and answers with
its results, in JSON or in the format of safetensors (see wire.py). ``GET /health`` tells the number of requests and of
batches. Requests that arrive within a few milliseconds run as one (see batching.py and layout.py).

Answers with errors are JSON objects with a text: 400 if the model refuses the request, 413 if the body is too large,
503 if too many requests wait or the service stops, 504 if a request has waited for too long.
"""

from __future__ import annotations

import argparse
import json
import signal
import threading
import time
from concurrent.futures import CancelledError
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from batching import Batcher, Busy
from exported_model import ExportedModel, ModelError
from wire import BINARY, JSON, BadBody, decode, encode

NO_MEMORY = 2
"""The code of a model that finds no memory for a call."""


class Service(ThreadingHTTPServer):
    """Holds the batches of a model, and the limits of requests.

    Args:
        body: The most bytes of a body.
        timeout_s: The most seconds that a request waits for its results.
        connections: The most connections at a time.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], batcher: Batcher, *, body: int, timeout_s: float, connections: int = 256
    ) -> None:
        super().__init__(address, Handler)
        self.batcher, self.body, self.timeout_s = batcher, body, timeout_s
        self.active = 0
        """Requests that have no answer yet."""
        self.stopping = False
        """Tells whether requests that arrive now are refused."""
        self.changed = threading.Condition()
        self._connections = threading.BoundedSemaphore(connections)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Starts a thread for a connection, or refuses it if there are too many."""
        if self._connections.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        with suppress(OSError):
            request.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answers the requests of a connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def serve(self) -> None:
        """Serves until `shutdown`, then answers the requests that have arrived."""
        self.serve_forever(0.1)
        with self.changed:
            self.stopping = True
            self.changed.wait_for(lambda: self.active == 0, timeout=self.timeout_s)
        self.batcher.close()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    server: Service  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"
    timeout = 10  # seconds that a client may be silent
    wbufsize = -1  # an answer is one packet
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """Tells how the service is."""
        if self.path != "/health":
            self._fail(404, "There are GET /health and POST /run.")
            return
        batcher = self.server.batcher
        facts = {
            "active": self.server.active, "requests": batcher.requests, "batches": batcher.batches,
            "inputs": batcher.model.manifest["inputs"],
        }  # fmt: skip
        self._answer(200, json.dumps(facts).encode(), JSON)

    def do_POST(self) -> None:
        """Runs a call."""
        with self.server.changed:
            refused = self.server.stopping
            self.server.active += not refused
        if refused:
            self._fail(503, "The service is being stopped.", close=True)
            return
        try:
            self._run()
        finally:
            with self.server.changed:
                self.server.active -= 1
                self.server.changed.notify_all()

    def _run(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()) or "Transfer-Encoding" in self.headers:
            self._fail(411, "Name the length of the body in Content-Length.", close=True)
        elif len(length) > 18 or int(length) > self.server.body:
            self._fail(413, f"The body has {length[:18]} bytes; there may be {self.server.body}.", close=True)
        elif self.path != "/run":
            self._fail(404, "There are GET /health and POST /run.", close=True)
        else:
            body = self.rfile.read(int(length))
            if len(body) == int(length):
                self._compute(body)
            else:
                self.close_connection = True

    def _compute(self, body: bytes) -> None:
        kind = self.headers.get_content_type()
        if kind not in (JSON, BINARY):
            self._fail(415, f"The type of the body is {kind}; the service takes {JSON} and {BINARY}.")
            return
        try:
            answer = self.server.batcher.submit(decode(body, kind, self.server.batcher.model.manifest["inputs"]))
        except BadBody as error:
            self._fail(400, str(error))
            return
        except Busy as error:
            self._fail(503, str(error))
            return
        try:
            results = answer.result(self.server.timeout_s)
        except (TimeoutError, CancelledError):
            answer.cancel()
            self._fail(504, f"There are no results after {self.server.timeout_s:g} s.")
        except (ModelError, TypeError, ValueError) as error:
            self._fail(503 if getattr(error, "code", 0) == NO_MEMORY else 400, str(error))
        except Exception as error:
            self._fail(500, f"{type(error).__name__}: {error}")
        else:
            self._answer(200, encode(results, kind), kind)

    def _fail(self, status: int, text: str, *, close: bool = False) -> None:
        self.close_connection = self.close_connection or close
        self._answer(status, json.dumps({"error": text}).encode(), JSON)
        if close:
            self._pass_over_body()

    def _pass_over_body(self) -> None:
        """Reads some megabytes of a body; closing the connection before would cut off the answer."""
        self.connection.settimeout(1)
        with suppress(OSError):
            for _ in range(64):
                if not self.rfile.read1(1 << 16):  # pyright: ignore[reportAttributeAccessIssue]
                    break

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()  # before the request counts as answered

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: a line for each request would be slow."""


def main() -> None:
    """Serves a model until the process is asked to end."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder")
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--port", type=int, default=8080, help="0 for any")
    options.add_argument("--wait-ms", type=float, default=3, help="how long a request waits for others")
    options.add_argument("--batch", type=int, default=64, help="the most requests of a batch")
    options.add_argument("--queue", type=int, default=512, help="the most requests that wait")
    options.add_argument("--body", type=int, default=16 << 20, help="the most bytes of a body")
    options.add_argument("--timeout", type=float, default=10, help="the most seconds of a request")
    chosen = options.parse_args()
    with ExportedModel(chosen.folder) as model:
        batcher = Batcher(model, wait=chosen.wait_ms / 1000, most=chosen.batch, room=chosen.queue)
        if batcher.layout is None:
            print("The names of the model's arrays do not tell types and edges, so each request runs alone.")
        service = Service((chosen.host, chosen.port), batcher, body=chosen.body, timeout_s=chosen.timeout)
        for kind in (signal.SIGINT, signal.SIGTERM):
            signal.signal(kind, lambda *_: threading.Thread(target=service.shutdown).start())
        print(f"http://{chosen.host}:{service.server_address[1]}/run", flush=True)
        started = time.monotonic()
        service.serve()
    print(f"{batcher.requests} requests in {batcher.batches} batches, {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
