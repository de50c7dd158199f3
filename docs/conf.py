"""Configures the site: `make docs` builds it into build/docs, without network, and every warning is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

import dacergnn

FOLDER = Path(__file__).resolve().parent
INCLUDED = {
    FOLDER.parent / name: page
    for name, page in {"README": "index", "CHANGELOG": "changelog", "SECURITY": "security"}.items()
}
"""Pages of the repository's root -> pages of the site that include them."""

project = "dacergnn"
copyright = "the authors of dacergnn"
version = release = dacergnn.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = f"dacergnn {release}"
html_copy_source = False
html_show_sphinx = False

myst_heading_anchors = 4

default_role = "py:obj"  # a name in backticks links to the object, where the reference has it
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
napoleon_use_rtype = False
nitpick_ignore_regex = [
    ("py:obj", ".*"),
    ("py:.*", r"(?!dacergnn).*"),  # other libraries' names: their inventories would have to be fetched
    # What public functions take from each other, and users have no need to look into.
    ("py:class", r"dacergnn\.frontends\.frontend\.ProgramSource|dacergnn\.program\.source\.PlacedText"),
    ("py:class", r"dacergnn\.graph\.(edge_list\.EdgeList|encodings\.Encodings|hetero_graph\.Features)"),
    ("py:class", r"dacergnn\.profiling\.forecast\.Forecast|dacergnn\.modules\.arrivals\.EncodedGraph"),
]


class RepositoryLinks(SphinxPostTransform):
    """Has links that lead somewhere in the repository lead to its place in the site, or leaves them as their text."""

    default_priority = 8  # before MyST looks for the targets of its links

    def run(self, **kwargs: Any) -> None:
        here = Path(self.env.doc2path(self.env.docname)).parent
        for node in [node for node in self.document.findall(pending_xref) if node["reftype"] == "myst"]:
            places = [(folder / node["reftarget"]).resolve() for folder in (here, FOLDER, FOLDER.parent)]
            pages = [INCLUDED[place.with_suffix("")] for place in places if place.with_suffix("") in INCLUDED]
            if pages:
                node["refdomain"], node["reftarget"] = "doc", pages[0]
                node.attributes.setdefault("reftargetid", None)
            elif node["refdomain"] != "doc" and node["reftarget"] and any(place.exists() for place in places):
                node.replace_self(nodes.inline("", "", *node.children))


def setup(app: Sphinx) -> None:
    app.add_post_transform(RepositoryLinks)
