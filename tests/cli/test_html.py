"""The self-contained page: everything inside, nothing fetched, no text that ends its element early."""

from __future__ import annotations

import json
import re
from pathlib import Path

import dace
import pytest

from dacergnn.cli.html import sdfg_text, self_contained_page, write_page

SDFG_ELEMENT = re.compile(r'<script type="application/json" id="dacergnn-sdfg-(\d+)">(.*?)</script>', re.DOTALL)


def small_sdfg(name: str) -> dace.SDFG:
    sdfg = dace.SDFG(name)
    sdfg.add_array("x", [dace.symbol("N", dtype=dace.int64)], dace.float32)
    sdfg.add_array("y", [dace.symbol("N", dtype=dace.int64)], dace.float32)
    state = sdfg.add_state()
    state.add_mapped_tasklet(
        "twice",
        {"i": "0:N"},
        {"a": dace.Memlet("x[i]")},
        "b = 2 * a if a < 1 else a",
        {"b": dace.Memlet("y[i]")},
        external_edges=True,
    )
    return sdfg


def test_page_holds_the_viewer_and_every_step_and_fetches_nothing(tmp_path: Path) -> None:
    files = {"00_frontend": tmp_path / "00_frontend.sdfg", "01_final </script>": tmp_path / "01_final.sdfgz"}
    for file in files.values():
        small_sdfg(file.stem[3:]).save(str(file), compress=file.suffix == ".sdfgz")
    write_page(tmp_path / "page" / "view.html", files, title="a < b")
    page = (tmp_path / "page" / "view.html").read_text(encoding="utf-8")

    embedded = [json.loads(text) for _, text in SDFG_ELEMENT.findall(page)]
    assert [sdfg["attributes"]["name"] for sdfg in embedded] == ["frontend", "final"]
    assert embedded[0] == json.loads(sdfg_text(files["00_frontend"]))
    assert "01_final &lt;/script>" in page
    assert "<title>a &lt; b</title>" in page
    assert "webpackChunk_spcl_sdfv" in page
    sources = re.findall(r"<(?:script|link|img)[^>]*\s(?:src|href)=[\"']([^\"']*)", page.split("<body")[0])
    sources += re.findall(r"<script src=\"([^\"]*)\"", page)
    assert sources == ["data:text/javascript,"]


def test_scripts_of_the_viewer_cannot_end_their_element(tmp_path: Path) -> None:
    viewer = tmp_path / "viewer"
    (viewer / "dist").mkdir(parents=True)
    (viewer / "dist" / "1.js").write_text("part()")
    (viewer / "dist" / "sdfv.js").write_text("s = '</script><!--';\n//# sourceMappingURL=sdfv.js.map")
    (viewer / "index.html").write_text(
        '<head><title>t</title><script defer src="./dist/sdfv.js"></script></head>'
        '<body><div class="container-fluid" id="header-container"></div></body>'
    )
    page = self_contained_page({"one": "{}"}, viewer=viewer)
    assert r"<script>s = '<\/script><\!--';" in page
    assert "sourceMappingURL" not in page
    assert page.index("part()") < page.index("s = '")


def test_a_viewer_of_another_shape_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "sdfv.js").write_text("")
    (tmp_path / "index.html").write_text('<head><script src="./dist/sdfv.js"></script></head>')
    with pytest.raises(ValueError, match=r"no '<div class=.*not the pinned one"):
        self_contained_page({"one": "{}"}, viewer=tmp_path)
