"""The HTTP service over an exported model: requests are joined, limits hold, and errors do not spread."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from tests.deploy.conftest import Deployed, random_batch
from tests.deploy.test_bindings import EXAMPLES, arrays_of, assert_results

sys.path += [str(EXAMPLES / "service"), str(EXAMPLES / "python")]
from batching import Batcher, Busy
from exported_model import ExportedModel
from layout import Layout
from load import Client, load
from server import Service
from wire import BINARY, JSON, BadBody, decode, encode

BODY = 1 << 20


@pytest.fixture(scope="module")
def model(deployed: Deployed) -> ExportedModel:
    return ExportedModel(deployed.folder, threads=1)


@pytest.fixture
def service(model: ExportedModel) -> Iterator[Service]:
    made = Service(("127.0.0.1", 0), Batcher(model, wait=0.02), body=BODY, timeout_s=20)
    thread = threading.Thread(target=made.serve)
    thread.start()
    yield made
    made.shutdown()
    thread.join()


def address(service: Service) -> str:
    return f"http://127.0.0.1:{service.server_address[1]}"


def post(service: Service, body: bytes, kind: str = BINARY, path: str = "/run", **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", service.server_address[1], timeout=30)
    connection.request("POST", path, body, {"Content-Type": kind, **headers})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, json.loads(content) if answer.headers["Content-Type"] == JSON else content


def test_many_clients_share_batches(service: Service, deployed: Deployed) -> None:
    def send(client_number: int) -> None:
        client = Client(address(service))
        for i in range(25):
            batch = random_batch(25 * client_number + i, 10)
            assert_results(client.run(arrays_of(batch)), deployed, batch)
        client.close()

    with ThreadPoolExecutor(12) as clients:
        list(clients.map(send, range(12)))
    assert service.batcher.requests == 300
    assert service.batcher.batches < 240


def test_load_test(service: Service) -> None:
    measured = load(address(service), clients=8, requests=200, nodes=10, edges=20)
    assert measured["requests_per_s"] > 0
    assert measured["p50_ms"] <= measured["p99_ms"]
    assert measured["requests_per_batch"] > 1.2


def test_json(service: Service, deployed: Deployed) -> None:
    for seed, largest in ((3, 5), (4, 0)):
        batch = random_batch(seed, largest)
        status, answer = post(service, encode(arrays_of(batch), JSON), JSON)
        assert status == 200
        shaped = {name: np.array(rows, np.float32).reshape(-1, 4) for name, rows in answer.items()}
        assert_results(shaped, deployed, batch)


def test_a_bad_request_harms_no_other(service: Service, deployed: Deployed) -> None:
    """An index that is out of range in one graph would be that of a node of another one after joining."""
    good, edges = random_batch(1, 10), "edges.paper__cites__paper"
    bad = arrays_of(good)
    bad[edges] = np.full((2, 1), len(bad["x.paper"]))

    def send(number: int) -> None:
        if number % 3:
            assert_results(decode(post(service, encode(arrays_of(good), BINARY))[1], BINARY, []), deployed, good)
        else:
            status, answer = post(service, encode(bad, BINARY))
            assert status == 400
            assert "is out of range" in answer["error"]

    with ThreadPoolExecutor(12) as clients:
        list(clients.map(send, range(60)))


def test_bad_requests(service: Service) -> None:
    arrays = arrays_of(random_batch(1, 5))
    whole = encode(arrays, BINARY)
    for body, kind, status, text in [
        (whole[:-1], BINARY, 400, "lies outside"),
        (b"", BINARY, 400, "fewer than its header"),
        (b"\xff" * 16, BINARY, 400, "fewer than its header"),
        (b"{}", JSON, 400, "x.author"),
        (b"[" * 100_000, JSON, 400, "cannot be read"),
        (b"3", JSON, 400, "no JSON object"),
        (b'{"a": 3}', JSON, 400, "no array 'a'"),
        (
            encode({**arrays, "x.paper": arrays["x.paper"].astype(np.float64)}, BINARY),
            BINARY,
            400,
            "x.paper is float64",
        ),
        (encode({**arrays, "x.paper": arrays["x.paper"][:, :3]}, BINARY), BINARY, 400, "must be 16"),
        (encode({**arrays, "x.paper": arrays["x.paper"][0]}, BINARY), BINARY, 400, "x.paper has 1 axes"),
        (whole, "text/html", 415, "text/html"),
        (b" " * (BODY + 1), BINARY, 413, f"there may be {BODY}"),
    ]:
        found, answer = post(service, body, kind)
        assert (found, text in answer["error"]) == (status, True), answer
    assert post(service, whole, path="/other")[0] == 404
    assert post(service, whole)[0] == 200


def test_bodies_that_are_wrong(model: ExportedModel) -> None:
    inputs = model.manifest["inputs"]
    for value, text in [("[[1.5], [0]]", "type float64"), ("[[1], [2, 3]]", "cannot be read"), ("[[1e400]]", "type"),
                        (f"[[{2**63}], [{2**63}]]", "too large"), ('"a"', "type <U1")]:  # fmt: skip
        with pytest.raises(BadBody, match=text):
            decode(f'{{"edges.paper__cites__paper": {value}}}'.encode(), JSON, inputs)
    for described, text in [
        ({"dtype": "F32", "shape": [-1, -1], "data_offsets": [0, 4]}, "negative size"),
        ({"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 4]}, "do not fit"),
        ({"dtype": "F16", "shape": [2], "data_offsets": [0, 4]}, "cannot be read"),
        ({"dtype": "BOOL", "shape": [4], "data_offsets": [0, 4]}, "neither 0 nor 1"),
        ({"shape": [2]}, "cannot be read"),
    ]:
        header = json.dumps({"x": described}).encode()
        with pytest.raises(BadBody, match=text):
            decode(len(header).to_bytes(8, "little") + header + b"\x02\0\0\0", BINARY, inputs)


def test_lengths_that_are_missing_or_wrong(service: Service) -> None:
    for line in ("", "Content-Length: -1\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n"):
        with socket.create_connection(("127.0.0.1", service.server_address[1]), timeout=10) as connection:
            connection.sendall(f"POST /run HTTP/1.1\r\nHost: own\r\n{line}\r\n".encode())
            assert connection.recv(100).startswith(b"HTTP/1.1 411")


def test_closing_answers_what_waits(model: ExportedModel) -> None:
    arrays = arrays_of(random_batch(1, 5))
    batcher = Batcher(model, wait=60, most=4)
    answers = [batcher.submit(arrays) for _ in range(3)]
    batcher.close()
    assert all("out.paper" in answer.result(10) for answer in answers)
    with pytest.raises(Busy, match="stopped"):
        batcher.submit(arrays)


def test_a_server_that_is_busy_or_slow(deployed: Deployed) -> None:
    """A model that takes its time, a queue of two requests, and half a second for each."""
    slow = _Slow(deployed.folder)
    service = Service(("127.0.0.1", 0), Batcher(slow, wait=0, most=1, room=2), body=BODY, timeout_s=0.5)
    thread = threading.Thread(target=service.serve)
    thread.start()
    body = encode(arrays_of(random_batch(1, 5)), BINARY)
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda _: post(service, body), range(8)))
    slow.go.set()
    service.shutdown()
    thread.join()
    texts = {answer["error"] for _, answer in answers}
    assert {status for status, _ in answers} == {503, 504}
    assert texts == {"Too many requests wait; try again later.", "There are no results after 0.5 s."}


class _Slow(ExportedModel):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.go = threading.Event()

    def __call__(self, *arrays: Any, **named: Any) -> dict[str, np.ndarray]:
        self.go.wait(60)
        return super().__call__(*arrays, **named)


def test_joining_needs_names_that_tell_types(model: ExportedModel) -> None:
    manifest = model.manifest
    assert Layout.of(manifest) is not None
    other = [{**own, "name": own["name"].replace("__", "_")} for own in manifest["inputs"]]
    assert Layout.of({**manifest, "inputs": other}) is None
    pooled = [{**manifest["outputs"][0], "shape": [1, 4]}]
    assert Layout.of({**manifest, "outputs": pooled}) is None


def test_a_process_that_is_asked_to_end(deployed: Deployed) -> None:
    command = [sys.executable, str(EXAMPLES / "service" / "server.py"), str(deployed.folder), "--port", "0"]
    with subprocess.Popen([*command, "--wait-ms", "200"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        batch = random_batch(2, 5)
        watching = Client(url)
        with closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)) as slow:
            body = encode(arrays_of(batch), BINARY)
            slow.putrequest("POST", "/run")
            slow.putheader("Content-Type", BINARY)
            slow.putheader("Content-Length", str(len(body)))
            slow.endheaders(body[:100])
            while watching.health()["active"] == 0:
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)  # while the rest of the request is on its way
            time.sleep(0.5)
            with pytest.raises(RuntimeError, match=r"503.*being stopped"):
                watching.run(arrays_of(batch))
            slow.send(body[100:])
            answer = slow.getresponse()
            assert answer.status == 200
            assert_results(decode(answer.read(), BINARY, []), deployed, batch)
        watching.close()
        assert "1 requests in 1 batches" in process.stdout.read()
        assert process.wait(20) == 0
