"""Configures the site: `make docs` builds it into build/docs, without network, and every warning is an error."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

import dacergnn

FOLDER = Path(__file__).resolve().parent

project = "dacergnn"
copyright = "the authors of dacergnn"
version = release = dacergnn.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = f"dacergnn {release}"
html_copy_source = False
html_show_sphinx = False

myst_heading_anchors = 4
# Some groups of index.md are still without pages.
logging.getLogger("sphinx.sphinx.directives.other").addFilter(lambda record: "glob pattern" not in str(record.msg))

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
    ("py:class", r"dacergnn\.graph\.(edge_list\.EdgeList|encodings\.Encodings|features\.Features)"),
    ("py:class", r"dacergnn\.profiling\.forecast\.Forecast|dacergnn\.modules\.arrivals\.EncodedGraph"),
]


class FolderLinks(SphinxPostTransform):
    """Leaves links to folders of the repository, which the site does not have, as their text."""

    default_priority = 8  # before MyST looks for the targets of its links

    def run(self, **kwargs: Any) -> None:
        for node in list(self.document.findall(pending_xref)):
            if node["reftype"] == "myst" and any((p / node["reftarget"]).is_dir() for p in (FOLDER, FOLDER.parent)):
                node.replace_self(nodes.inline("", "", *node.children))


def setup(app: Sphinx) -> None:
    app.add_post_transform(FolderLinks)
