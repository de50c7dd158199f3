"""Makes the pictures of transformations.md: a program in DaCe's viewer, as it starts and after some of the passes.

    dacergnn view --model rgat --data aifb --no-open --out sdfg
    python docs/make_pictures.py sdfg/00_frontend.sdfg docs/images/rgat compact_materialization traversal_fusion

writes docs/images/rgat.png, docs/images/rgat_compact_materialization.png, ... Needs Chromium and Pillow.
"""

from __future__ import annotations

import base64
import io
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import dace
from PIL import Image

from dacergnn.cli.html import self_contained_page
from dacergnn.sdfg_passes.transformations import TRANSFORMATIONS

SHOOT = """<script>setTimeout(() => {
  const renderer = WebSDFV.getInstance().renderer;
  renderer.zoom_to_view(null, false);
  setTimeout(() => document.documentElement.replaceChildren(renderer.canvas.toDataURL()), 3000);
}, 3000);</script>"""
# A setting of the viewer; sizes say more than names, which operators show as well.
SIZES = ' (hides data container names)","type":"boolean","default":'


def photograph(sdfg: dace.SDFG, picture: Path) -> None:
    text = re.sub(r"symbol\(\$(\w+), dtype=[\w.]+\)", r"\1", json.dumps(sdfg.to_json()))
    page = self_contained_page({"program": text})
    head, found, tail = page.replace(SIZES + "false", SIZES + "true").rpartition("</body>")
    if SIZES not in head:
        sys.exit(f"DaCe's viewer has no setting{SIZES}; this version of DaCe is not the pinned one.")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "page.html").write_text(head + SHOOT + found + tail, encoding="utf-8")
        options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile"]
        options += ["--window-size=900,1500", "--virtual-time-budget=15000", "--dump-dom"]
        command = ["chromium", *options, f"file://{folder}/page.html"]
        shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    data = re.search(r"data:image/png;base64,([\w+/=]+)", shown)
    if data is None:
        sys.exit("The viewer has not drawn the program.")
    image = Image.open(io.BytesIO(base64.b64decode(data[1])))
    image.crop(image.getbbox()).quantize(64).save(picture, optimize=True)


def main(file: str, target: str, *names: str) -> None:
    sdfg = dace.SDFG.from_file(file)
    photograph(sdfg, Path(f"{target}.png"))
    for name, kind in TRANSFORMATIONS.items():
        sdfg.apply_transformations(kind)
        if name in names:
            photograph(sdfg, Path(f"{target}_{name}.png"))


if __name__ == "__main__":
    main(*sys.argv[1:])
