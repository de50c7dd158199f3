"""Programs of other languages call an exported model: its results are those of torch, and its errors arrive."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from examples.deployment.python.exported_model import ExportedModel, ModelError
from tests.deploy.conftest import Batch, Deployed, random_batch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "deployment"
WARNINGS = ["-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
BUILDS = {
    "c/main.c": ["cc", "-std=c11"],
    "cpp/main.cpp": ["c++", "-std=c++17"],
}


def arrays_of(batch: Batch) -> dict[str, np.ndarray]:
    """A batch as arrays by the names in the manifest."""
    x, edges = batch
    named = {f"x.{own}": rows.numpy() for own, rows in x.items()}
    return named | {f"edges.{'__'.join(own)}": pairs.numpy() for own, pairs in edges.items()}


def sizes_of(array: np.ndarray) -> bytes:
    return np.array([*array.shape, 0, 0], np.int64).tobytes()


def write_batch(path: Path, arrays: dict[str, np.ndarray]) -> None:
    path.write_bytes(b"".join(sizes_of(array) + array.tobytes() for array in arrays.values()))


def read_results(path: Path, names: list[str]) -> dict[str, np.ndarray]:
    content, results, place = path.read_bytes(), dict[str, np.ndarray](), 0
    for name in names:
        rows, width = np.frombuffer(content, np.int64, 2, place).tolist()
        results[name] = np.frombuffer(content, np.float32, rows * width, place + 32).reshape(rows, width)
        place += 32 + 4 * rows * width
    assert place == len(content)
    return results


def assert_results(found: dict[str, np.ndarray], deployed: Deployed, batch: Batch) -> None:
    wanted = deployed(batch)
    assert found.keys() == {f"out.{own}" for own in wanted}
    for own, rows in wanted.items():
        torch.testing.assert_close(torch.tensor(found[f"out.{own}"]), rows, rtol=1e-6, atol=1e-6)


@pytest.fixture(scope="module")
def programs(deployed: Deployed, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("programs")
    made: dict[str, Path] = {}
    for source, compiler in BUILDS.items():
        made[source] = folder / source.replace("/", "_").replace(".", "_")
        command = [*compiler, *WARNINGS, str(EXAMPLES / source), "-o", str(made[source]), *deployed.link()]
        subprocess.run(command, check=True)
    return made


@pytest.fixture
def model(deployed: Deployed) -> ExportedModel:
    return ExportedModel(deployed.folder, threads=1)


def run(program: Path, batch: Path, results: Path) -> tuple[int, str]:
    found = subprocess.run([program, batch, results], capture_output=True, text=True, check=False)
    return found.returncode, found.stderr


@pytest.mark.parametrize("source", BUILDS)
def test_programs(source: str, programs: dict[str, Path], deployed: Deployed, tmp_path: Path) -> None:
    batch, results = tmp_path / "batch", tmp_path / "results"
    for seed in range(4):
        given = random_batch(seed, 30 * (seed > 0))
        write_batch(batch, arrays_of(given))
        assert run(programs[source], batch, results) == (0, "")
        assert_results(read_results(results, ["out.paper", "out.author", "out.venue"]), deployed, given)


@pytest.mark.parametrize("source", BUILDS)
def test_errors_of_programs(source: str, programs: dict[str, Path], tmp_path: Path) -> None:
    batch, results = tmp_path / "batch", tmp_path / "results"
    arrays = arrays_of(random_batch(1))
    wrong = {**arrays, "edges.paper__cites__paper": arrays["edges.paper__cites__paper"] + 1000}
    write_batch(batch, wrong)
    code, text = run(programs[source], batch, results)
    assert code == 1
    assert "is out of range" in text
    write_batch(batch, {**arrays, "x.venue": arrays["x.venue"][:, :15].copy()})
    assert "size 15 in axis 1 must be 16" in run(programs[source], batch, results)[1]
    batch.write_bytes(batch.read_bytes()[:-1])
    assert "too short" in run(programs[source], batch, results)[1]
    batch.write_bytes(np.array([-1, 16, 0, 0], np.int64).tobytes())
    assert "out of range" in run(programs[source], batch, results)[1]
    assert run(programs[source], tmp_path / "none", results)[0] == 1


def test_errors_of_the_header_for_cpp(deployed: Deployed, tmp_path: Path) -> None:
    source, program = Path(__file__).parent / "checks_of_model.cpp", tmp_path / "checks"
    folders = [f"-I{EXAMPLES / 'cpp'}", *deployed.link()]
    command = ["c++", "-std=c++17", *WARNINGS, "-fsanitize=address,undefined", str(source), "-o", str(program)]
    subprocess.run([*command, *folders], check=True)
    found = subprocess.run([program], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def test_python(model: ExportedModel, deployed: Deployed) -> None:
    for seed in range(4):
        batch = random_batch(seed, 30 * (seed > 0))
        assert_results(model(arrays_of(batch)), deployed, batch)
        assert_results(model(**arrays_of(batch)), deployed, batch)


def test_python_needs_neither_torch_nor_dacergnn(deployed: Deployed) -> None:
    code = "import sys, exported_model; exported_model.ExportedModel(sys.argv[1]); print(*sys.modules)"
    command = [sys.executable, "-c", code, str(deployed.folder)]
    found = subprocess.run(command, capture_output=True, text=True, check=True, cwd=EXAMPLES / "python")
    assert not {"torch", "dacergnn", "dace"} & set(found.stdout.split())


def test_python_asks_for_sizes_that_the_manifest_does_not_tell(model: ExportedModel, deployed: Deployed) -> None:
    for described in model.manifest["outputs"]:
        described["shape"][0] = "a size that no argument has"
    batch = random_batch(2)
    assert_results(model(arrays_of(batch)), deployed, batch)


def test_errors_of_python(model: ExportedModel) -> None:
    arrays = arrays_of(random_batch(1))
    authors = arrays["x.author"]
    for wrong, error, text in [
        ({"x.author": authors.astype(np.float64)}, TypeError, "x.author is float64; pass np.asarray"),
        ({"x.author": authors.tolist()}, TypeError, "x.author is list"),
        ({"x.author": authors[None]}, ValueError, "x.author has 3 axes"),
        ({"x.author": np.asfortranarray(authors)}, ValueError, "gaps in memory"),
        ({"x.author": authors[:, :3].copy()}, ModelError, "x.author: size 3 in axis 1 must be 16"),
        ({"x.autor": authors}, TypeError, "x.autor unknown"),
    ]:
        with pytest.raises(error, match=text):
            model({**arrays, **wrong})
    with pytest.raises(TypeError, match=r"x\.author missing"):
        model({name: array for name, array in arrays.items() if name != "x.author"})
    edges = "edges.author__writes__paper"
    with pytest.raises(ModelError, match="is out of range") as raised:
        model({**arrays, edges: arrays[edges] - 1})
    assert raised.value.code == 1


def test_a_closed_python_model(deployed: Deployed) -> None:
    with ExportedModel(deployed.folder) as model:
        pass
    model.close()
    with pytest.raises(ValueError, match="closed"):
        model(arrays_of(random_batch(1)))


def test_python_from_many_threads(model: ExportedModel, deployed: Deployed) -> None:
    batches = [random_batch(seed) for seed in range(8)]
    errors: list[BaseException] = []

    def repeat(batch: Batch) -> None:
        try:
            arrays = arrays_of(batch)
            for _ in range(20):
                assert_results(model(arrays), deployed, batch)
                with pytest.raises(ModelError, match="must be 16"):
                    model({**arrays, "x.paper": arrays["x.paper"][:0, :7].copy()})
        except BaseException as error:
            errors.append(error)

    start_all([lambda batch=batch: repeat(batch) for batch in batches])
    assert not errors


def start_all(actions: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=action) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_library_and_a_manifest_of_different_exports(deployed: Deployed, tmp_path: Path) -> None:
    for file in deployed.folder.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    manifest = tmp_path / "model.json"
    manifest.write_text(manifest.read_text().replace('"fingerprint": "', '"fingerprint": "0'))
    with pytest.raises(ValueError, match="of different exports"):
        ExportedModel(tmp_path)
