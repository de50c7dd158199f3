"""Writes one HTML file with DaCe's viewer and SDFGs inside; it opens without DaCe, server or network."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

_SCRIPT_TAG = re.compile(r"""<script[^>]*\ssrc=["']\./([^"']+)["'][^>]*>\s*</script>""")

# The viewer's bundle derives the address of its parts from the first script's src, and does not start without it.
# All its parts are inside this page already, so any address works.
_ADDRESS = '<script src="data:text/javascript,"></script>'

# DaCe ships no icon font; without it the names of the icons fill the buttons, so they are set small.
_STYLE = "<style>.material-symbols-outlined { font: 11px sans-serif !important; }</style>"

_SHOW = """
const select = document.getElementById("dacergnn-step");
function dacergnnShow() {
  const text = document.getElementById("dacergnn-sdfg-" + select.value).textContent;
  WebSDFV.getInstance().setSDFG(checkCompatLoad(parse_sdfg(text)), null, false);
}
select.addEventListener("change", dacergnnShow);
document.addEventListener("DOMContentLoaded", () => {
  const viewer = WebSDFV.getInstance();
  if (viewer.initialized) dacergnnShow(); else viewer.on("initialized", dacergnnShow);
});
"""


def viewer_folder() -> Path:
    """Returns the folder of the viewer that DaCe ships."""
    import dace

    return Path(dace.__file__).parent / "viewer" / "webclient"


def self_contained_page(sdfgs: Mapping[str, str], title: str = "dacergnn", viewer: Path | None = None) -> str:
    """Returns HTML text that shows one of several SDFGs, chosen from a list.

    Args:
        sdfgs: Name of a step -> its SDFG as JSON text, in the order of the list; at least one.
        title: Title of the page.
        viewer: Folder of the viewer; by default DaCe's own.
    """
    folder = viewer or viewer_folder()
    page = (folder / "index.html").read_text(encoding="utf-8")
    parts = [folder / match.group(1) for match in _SCRIPT_TAG.finditer(page)]
    # Parts that the bundle would fetch on demand (editor languages) register themselves if they come first.
    bundle = next(part for part in parts if part.name == "sdfv.js")
    parts[parts.index(bundle) : parts.index(bundle)] = sorted(bundle.parent.glob("[0-9]*.js"))
    scripts = [_inline(part.read_text(encoding="utf-8")) for part in parts]
    data = [_data(i, text) for i, text in enumerate(sdfgs.values())]
    options = "".join(f'<option value="{i}">{_escape(name)}</option>' for i, name in enumerate(sdfgs))
    chooser = f'<select id="dacergnn-step" class="form-select form-select-sm m-1">{options}</select>'

    page = _SCRIPT_TAG.sub("", page)
    page = re.sub(r"<title>.*?</title>", lambda _: f"<title>{_escape(title)}</title>", page, count=1)
    page = _insert(page, "</head>", _STYLE, before=True)
    page = _insert(page, '<div class="container-fluid" id="header-container">', chooser, before=False)
    return _insert(page, "</body>", "\n".join([_ADDRESS, *data, *scripts, f"<script>{_SHOW}</script>"]), before=True)


def write_page(target: Path, steps: Mapping[str, Path], title: str = "dacergnn") -> None:
    """Writes `self_contained_page` of saved SDFG files, name of the step -> file (.sdfg or .sdfgz)."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(self_contained_page({k: sdfg_text(v) for k, v in steps.items()}, title), encoding="utf-8")


def sdfg_text(file: Path) -> str:
    """Returns the JSON text of a saved SDFG, compressed or not."""
    import gzip

    content = file.read_bytes()
    return (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content).decode("utf-8")


def _inline(code: str) -> str:
    """Returns a script element of code, with "<!--" and "</script" escaped, since they mean something to HTML."""
    code = re.sub(r"//# sourceMappingURL=.*", "", code)
    code = re.sub(r"<(?=/script)", r"<\\", code, flags=re.IGNORECASE).replace("<!--", r"<\!--")
    return f"<script>{code}</script>"


def _data(number: int, sdfg: str) -> str:
    text = json.dumps(json.loads(sdfg), separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="dacergnn-sdfg-{number}">{text}</script>'


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")


def _insert(page: str, anchor: str, text: str, *, before: bool) -> str:
    """Returns `page` with `text` before or after `anchor`; raises ValueError if the page has no such anchor."""
    head, separator, tail = page.partition(anchor)
    if not separator:
        raise ValueError(f"DaCe's viewer page has no {anchor!r}; this version of DaCe is not the pinned one.")
    return head + text + anchor + tail if before else head + anchor + text + tail
