"""Makes pictures of what commands show on a screen, drawn by Chromium.

    python docs/make_screens.py [NAME ...]    # demo, profile; all of them by default

writes docs/images/NAME.png. Needs Chromium, Pillow, and a machine without other work.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.text import Text

import dacergnn
from dacergnn.cli.named_layers import compiled_layer
from dacergnn.profiling.result import WIDTH
from examples.demo.__main__ import compare

IMAGES = Path(__file__).resolve().parent / "images"


def demo(console: Console) -> None:
    commands = Path(sys.executable).parent  # of an environment that users have activated
    os.environ["PATH"] = f"{commands}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        compare(20, Path("demo_output"), console)


def profile(console: Console) -> None:
    import torch

    layer = compiled_layer("rgcn", "aifb", 64, 1)
    graph = layer.last_call[1]
    features = torch.randn(graph.size("NS"), 64, requires_grad=True)
    console.print(Text(str(dacergnn.profile(layer, features, graph))))


SCREENS: dict[str, tuple[Callable[[Console], None], str, int]] = {
    "demo": (demo, "make demo", 80),
    "profile": (profile, "dacergnn profile --model rgcn --data aifb", WIDTH),
}
"""Maps names to what fills a screen, its title, and its columns."""


def draw(name: str) -> None:
    fill, title, columns = SCREENS[name]
    console = Console(record=True, width=columns, file=io.StringIO(), highlight=False)
    fill(console)
    console.print()  # the frame would cut off the feet of the last line
    drawing = console.export_svg(title=title)
    size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawing)
    assert size is not None
    width, height = (round(float(side)) for side in size.groups())
    page = f'<body style="margin:0">{drawing.replace("<svg ", f"<svg width={width} height={height} ", 1)}</body>'
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "page.html").write_text(page, encoding="utf-8")
        options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile"]
        options += [f"--window-size={width},{height}", f"--screenshot={folder}/shot.png", "--hide-scrollbars"]
        subprocess.run(["chromium", *options, f"file://{folder}/page.html"], check=True, capture_output=True)
        Image.open(f"{folder}/shot.png").convert("RGB").quantize(64).save(IMAGES / f"{name}.png", optimize=True)


if __name__ == "__main__":
    for screen in sys.argv[1:] or SCREENS:
        draw(screen)
