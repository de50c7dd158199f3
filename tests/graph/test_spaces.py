import pytest

from dacergnn.errors import EncodingError
from dacergnn.graph import MAPS, ROW_SPACES, TYPE_PATHS, encoding_name, parse_encoding, target_space


def test_every_map_has_a_name_that_parses_back():
    for space, path in MAPS:
        for kind in ("idx", "ptr", "ids", "len", "ell", "reg", "hyb"):
            name = encoding_name(kind, space, path)
            assert name == f"{kind}_{space}_{path}"
            assert parse_encoding(name) == (kind, space, (path,))
    assert parse_encoding("ids_E_etype_src") == ("ids", "E", ("etype", "src"))
    assert parse_encoding("ell_E_dst_src") == ("ell", "E", ("dst", "src"))


def test_maps_lead_between_row_spaces():
    assert {space for space, _ in MAPS} | set(MAPS.values()) == set(ROW_SPACES)
    assert target_space("E", "typedsrc") == "RNS"
    assert {target for (_, path), target in MAPS.items() if path in TYPE_PATHS} == {"R", "T", "ONE"}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("E_src", "'E_src' is no encoding; names read like idx_E_src"),
        ("csr_E_src", "'csr_E_src' has the kind 'csr'; use one of idx, ptr, ids"),
        ("idx_X_src", "'X' is not a row space; use one of NS, ND"),
        ("idx_U_dst", "Rows of U have no map 'dst'; use one of src, etype, srctype, one"),
        ("idx_E_etype_src", "'idx_E_etype_src' has 2 paths; idx takes exactly one path"),
        ("ids_E_src_etype", "the first of two paths must be one of etype"),
        ("len_E_dst_src", "'len_E_dst_src' has 2 paths; len takes exactly one path"),
        ("hyb_E_dst_src_etype", "has 3 paths; hyb takes one or two paths"),
        ("ids_E_etype_src_dst", "ids takes one path, or a type path and a path"),
    ],
)
def test_wrong_names(name: str, message: str):
    with pytest.raises(EncodingError, match="^.*" + message.replace("(", r"\(")):
        parse_encoding(name)
