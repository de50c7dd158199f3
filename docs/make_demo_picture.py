"""Makes the picture of what `dacergnn demo` shows: runs it on a screen of 80 columns, and draws that by Chromium.

    python docs/make_demo_picture.py docs/images/demo.png

Needs Chromium and Pillow.
"""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from rich.console import Console

from dacergnn.demo.command import compare


def main(picture: str) -> None:
    console = Console(record=True, width=80, file=io.StringIO(), highlight=False)
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.chdir(folder):
            compare(20, Path("demo_output"), console)
        console.print()  # the frame would cut off the feet of the last line
        drawing = console.export_svg(title="dacergnn demo")
        size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawing)
        assert size is not None
        width, height = (round(float(side)) for side in size.groups())
        page = f'<body style="margin:0">{drawing.replace("<svg ", f"<svg width={width} height={height} ", 1)}</body>'
        Path(folder, "page.html").write_text(page, encoding="utf-8")
        options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile"]
        options += [f"--window-size={width},{height}", f"--screenshot={folder}/shot.png", "--hide-scrollbars"]
        subprocess.run(["chromium", *options, f"file://{folder}/page.html"], check=True, capture_output=True)
        Image.open(f"{folder}/shot.png").convert("RGB").quantize(64).save(picture, optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
