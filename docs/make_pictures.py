"""Makes the pictures of transformations.md: steps of a layer, as the page shows them that is saved with its SDFGs.

    dacergnn view --model rgat --data aifb --no-open --out sdfg
    python docs/make_pictures.py sdfg docs/images/rgat 04_compact_materialization 16_traversal_fusion

writes docs/images/rgat.png, the first step, docs/images/rgat_compact_materialization.png, ...; needs Chromium, Pillow.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageChops

from dacergnn.modules.sdfg_files import PAGE

SIZE = (1500, 1500)


def photograph(page: Path, step: int, picture: Path) -> None:
    """Saves what a browser shows of a step, without the empty part at the bottom."""
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder) / "shot.png"
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={folder}/profile",
        ]
        options += [f"--window-size={SIZE[0]},{SIZE[1]}", f"--screenshot={shot}"]
        command = ["chromium", *options, f"{page.resolve().as_uri()}#{step}"]
        subprocess.run(command, check=True, capture_output=True)
        image = Image.open(shot).convert("RGB")
    box = ImageChops.difference(image, Image.new("RGB", image.size, "white")).getbbox()
    assert box is not None, f"{page}: the browser shows nothing."
    image.crop((0, 0, SIZE[0], min(SIZE[1], box[3] + 10))).quantize(64).save(picture, optimize=True)


def main(folder: str, target: str, *steps: str) -> None:
    page = Path(folder) / PAGE
    photograph(page, 0, Path(f"{target}.png"))
    for step in steps:
        number, _, name = step.partition("_")
        photograph(page, int(number), Path(f"{target}_{name}.png"))


if __name__ == "__main__":
    main(*sys.argv[1:])
