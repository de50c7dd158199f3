"""Builds encodings by name, lazily and once: index vectors, groupings and the unique pairs U and V."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence

import torch
from torch import Tensor

from dacergnn.errors import ArrayError, EncodingError, GraphError
from dacergnn.graph import counting, formats, native_sorting, sorting
from dacergnn.graph.canonical import row_counts
from dacergnn.graph.counting import BY_SOURCE, COUNTED, PAIRS
from dacergnn.graph.counts import Counts
from dacergnn.graph.edge_list import EdgeList
from dacergnn.graph.edge_weights import WEIGHTS
from dacergnn.graph.encoding_steps import names_in_part, reads_pairs, steps_of
from dacergnn.graph.lifetime import lasting
from dacergnn.graph.sorting import groups_of_rows, pointers, stable_order
from dacergnn.graph.spaces import GRAPH_SPACES, PARTS, encoding_name, kind, parse_encoding, part, target_space
from dacergnn.graph.vectors import Vectors
from dacergnn.scratch import zeros_in_file

_FEW = 1 << 12
_MANY = 1 << 22


class Encodings:
    """Holds the encodings of one graph, and builds them from its edges in canonical order."""

    def __init__(self, edges: EdgeList) -> None:
        self.edges = edges
        self.spaces = GRAPH_SPACES
        """Row spaces that have encodings."""
        self._sizes = row_counts(edges)
        self._dtype = edges.src.dtype
        self._device = edges.src.device
        types = {"idx_E_etype": edges.edge_type} if edges.num_edge_types > 1 else {}
        self._built = Vectors({"idx_E_src": edges.src, "idx_E_dst": edges.dst, **types})
        self._lock = threading.RLock()
        self._addressed: set[str] = set()  # those of `COUNTED` whose addresses somebody may have
        self._parts: dict[str, Encodings] = {}
        self._counts: Counts | None = None
        self.forgotten_from = _MANY
        """Holds the length from which on vectors are forgotten that only others are made of."""
        self.scratch: str | None = None
        """Names a folder for temporary files, in which vectors lie in place of memory."""
        self.tell: Callable[[str], None] | None = None
        """Called with the name of each encoding that is built."""

    @property
    def dtype(self) -> torch.dtype:
        """Returns the element type of all encodings."""
        return self._dtype

    def size(self, space: str) -> int:
        """Returns the number of rows of a space; the first request for U, V or a part counts all of these."""
        if space not in self._sizes:
            if space not in self.spaces:
                raise EncodingError(
                    f"Rows {space} are those of sparse features, which the graph lacks; use with_features."
                )
            self._sizes |= self.counts.sizes
        return self._sizes[space]

    def sizes(self, spaces: Sequence[str]) -> dict[str, int]:
        """Returns the number of rows of several spaces."""
        known = self._sizes
        return {space: known[space] if space in known else self.size(space) for space in spaces}

    @property
    def counts(self) -> Counts:
        """Returns the counts; the first call sorts the edges by (etype, src)."""
        with self._lock:
            if self._counts is None:
                with lasting():
                    self._counts = self._count()
                self._told("counts")
            return self._counts

    def _told(self, *names: str) -> None:
        if self.tell is not None:
            for name in names:
                self.tell(name)

    def take(self, built: Mapping[str, Tensor], counts: Counts | None) -> None:
        """Takes over encodings and counts of the same edges."""
        for name, vector in built.items():
            self._built[name] = vector
        self._counts = counts
        if counts is not None:
            self._sizes |= counts.sizes

    @property
    def known(self) -> tuple[dict[str, Tensor], Counts | None]:
        """Returns the encodings built so far, and the counts if they are known."""
        with self._lock:
            return self._built.tensors(), self._counts

    def _count(self) -> Counts:
        counts, starts = counting.count(self.edges, self._order_by_source())
        for (space, path), own in zip(PAIRS.items(), starts, strict=True):
            used = own[: counts.sizes[space] + 1].to(self._dtype)
            # Both vectors have room for as many pairs as edges; a copy frees the rest where it is large.
            self._built[f"ptr_E_{path}"] = self._kept(used.clone() if own.numel() > _FEW else used)
        return counts

    def _order_by_source(self) -> Tensor | None:
        """Returns the edges in the order (etype, src); None if that is their present order."""
        order = self.get("ids_E_etype_src")
        return None if order is self._built.get("arange_E") else order

    def take_counts(self, other: Encodings) -> None:
        """Takes over the counts of the same edges on another device."""
        self._counts = other._counts
        self._sizes |= other._sizes

    def _part(self, name: str) -> Encodings:
        """Returns the encodings of the edges of a part."""
        if name not in self._parts:
            edges, rows = self.edges, self.get(f"idx_E{name}_edge")
            chosen = {key: getattr(edges, key).index_select(0, rows) for key in ("src", "dst", "edge_type")}
            self._parts[name] = Encodings(edges._replace(**chosen))
            self._parts[name].forgotten_from, self._parts[name].scratch = self.forgotten_from, self.scratch
            self._parts[name]._sizes |= {space: self.size(f"{space}{name}") for space in PAIRS}
        return self._parts[name]

    def get(self, name: str) -> Tensor:
        """Returns the encoding `name`, 1-D and contiguous; raises EncodingError if there is no such name."""
        encoding = self._built.get(name)
        if encoding is not None:
            return encoding
        self.make((name,))
        return self.once(name, lambda: self._build(name))

    def make(self, names: Sequence[str]) -> None:
        """Builds several encodings together if the edges are on the host; `get` builds the others."""
        if not sorting.at_hand(self.edges.src):
            return
        with self._lock:
            self._make_in_parts(names)
            wanted = tuple([name for name in names if name not in self._built])
            if not wanted:
                return
            if reads_pairs(wanted):
                self.counts  # builds the starts of pairs  # noqa: B018
            steps = steps_of(wanted, frozenset(self._built), self.size("R") > 1, self.edges.src_type is not None)
            if not steps.made and not steps.shared:
                return
            for name in steps.inputs:
                if name.endswith("_ntype") and name in wanted:
                    self._built[name] = self._given(name)
            with lasting():
                counts = [self.size(space) + longer for _, space, longer in steps.made]
                sizes = [self.size(space) for space in steps.spaces]
                named = {*wanted, *(other for name, other, _ in steps.shared if name in wanted)}
                rest = sum(count for (name, _, _), count in zip(steps.made, counts, strict=True) if name not in named)
                kept = [rest < self.forgotten_from or name in named for name, _, _ in steps.made]
                memory_and_places = native_sorting.encode(
                    steps.words, sizes, [*map(self._given, steps.inputs)], counts, kept, self._empty
                )
                if memory_and_places is None:
                    return
                memory, places = memory_and_places
                for (name, space, _), count, place, is_kept in zip(steps.made, counts, places, kept, strict=True):
                    if not is_kept:
                        continue
                    if place is None:
                        self._share_arange(name, space)
                    elif isinstance(place, int):
                        self._built.place(name, memory, place, count)
                    else:
                        self._built[name] = place
                for name, other, space in steps.shared:
                    if other in self._built:
                        self._built.share(name, other)
                    elif other:
                        continue  # only others are made of both
                    else:
                        self._share_arange(name, space)
                self._told(*wanted)

    def _make_in_parts(self, names: Sequence[str]) -> None:
        """Builds those encodings together that belong to the edges of a part."""
        for own in PARTS:
            inner = [of_part for name, of_part in names_in_part(tuple(names), own) if name not in self._built]
            if inner:
                self._part(own).make(inner)

    def _share_arange(self, name: str, space: str) -> None:
        """Notes that an encoding holds the rows of a space in their present order."""
        numbers = f"arange_{space}"
        if numbers not in self._built:
            self._arange(space)
        self._built.share(name, numbers)

    def addresses(self, names: Sequence[str]) -> list[int]:
        """Builds several encodings together, and returns their addresses, valid as long as this object lives."""
        with self._lock:
            self._addressed |= COUNTED.intersection(names)
            many = self.size("E") >= self.forgotten_from
            before = ({*self._built, *names, *COUNTED}, {*self._parts}) if many else None
            addresses = self._built.addresses(names)
            if addresses is None:
                self.make(names)
                addresses = self._built.addresses(names)
            if addresses is None:
                addresses = [self.get(name).data_ptr() for name in names]
            if before is not None:
                self._forget(*before)
            return addresses

    def _forget(self, vectors: Collection[str], parts: Collection[str]) -> None:
        """Forgets all large vectors and parts but those named: only others are made of them, and they can be again."""
        for name in [*self._built]:
            if name not in vectors and len(self._built[name]) >= self.forgotten_from:
                del self._built[name]
        for name in [*self._parts]:
            if name not in parts and self.size(f"E{name}") >= self.forgotten_from:
                del self._parts[name]

    def forget_counted(self) -> None:
        """Forgets the encodings that were made when pairs were counted, unless programs have asked for them."""
        with self._lock:
            for name in COUNTED:
                if name in self._built and name not in self._addressed:
                    del self._built[name]

    def _given(self, name: str) -> Tensor:
        """Returns an encoding that exists already, built or as a vector of the edges."""
        vector = self._built.get(name)
        if vector is None:
            _, space, (path,) = parse_encoding(name)
            vector = self._index(space, path)
        return vector

    def _empty(self, count: int) -> Tensor:
        if self.scratch is None:
            return torch.empty(count, dtype=self._dtype)
        return zeros_in_file(self.scratch, (count,), self._dtype)

    def _kept(self, vector: Tensor) -> Tensor:
        """Returns a new vector where this graph keeps its vectors."""
        return vector if self.scratch is None else zeros_in_file(self.scratch, vector.shape, vector.dtype).copy_(vector)

    def check_rows(self, values: Tensor) -> None:
        """Raises ArrayError unless there is a row for each edge."""
        if values.shape[:1] != (self.size("E"),):
            raise ArrayError("values", f"has shape {list(values.shape)}; it must have {self.size('E')} rows")

    def once(self, name: str, build: Callable[[], Tensor]) -> Tensor:
        """Returns the tensor kept under `name`; the first call builds it."""
        with self._lock:
            if name not in self._built:
                with lasting():
                    self._built[name] = self._kept(build())
                self._told(name)
            return self._built[name]

    def built(self) -> list[Tensor]:
        """Returns the vectors of the edges, and all that has been built from them."""
        edges = self.edges
        own = [t for t in (edges.src, edges.dst, edges.edge_type, edges.src_type, edges.dst_type) if t is not None]
        with self._lock:
            return [*own, *self._built.tensors().values(), *(t for p in self._parts.values() for t in p.built())]

    def byte_counts(self) -> dict[str, int]:
        """Returns the bytes of each encoding built so far, sorted by name; encodings that share memory count once."""
        with self._lock:
            seen: set[int] = set()
            counts: dict[str, int] = {}
            for name, tensor in sorted(self._built.tensors().items()):
                new = tensor.data_ptr() not in seen
                seen.add(tensor.data_ptr())
                counts[name] = tensor.nbytes if new else 0
            return counts

    def weights(self, kind: str, dtype: torch.dtype) -> Tensor:
        """Returns the weights of a kind in `WEIGHTS`; built once."""
        name = f"{kind}_weights_{str(dtype).removeprefix('torch.')}"
        return self.once(name, lambda: WEIGHTS[kind](self.edges, lambda: self.get("ptr_E_dstpair"), dtype))

    def single_typed(self) -> bool:
        """Tells whether the edges of every type join one source node type with one destination node type."""
        if self.edges.single_typed or self.size("T") == 1:
            return True
        return all(first_mixed == self.size("R") for first_mixed in self.counts.mixed.values())

    def _joined_types(self, types: Tensor) -> Tensor:
        """Returns [R] the end point's type for the first edge of each type; 0 for a type without edges."""
        bounds = self.get("ptr_E_etype")
        if not len(types):
            return torch.zeros(self.size("R"), dtype=self._dtype, device=self._device)
        first = types.index_select(0, bounds[:-1].clamp(max=len(types) - 1))
        return first * (bounds.diff() > 0)

    def _build(self, name: str) -> Tensor:
        form, space, paths = parse_encoding(name)
        own = part(space)
        if own and "edge" not in paths:
            return self._part(own).get(encoding_name(form, kind(space), *paths))
        if form == "idx":
            return self._index(space, paths[0])
        if form == "ptr":
            return self._pointers(space, paths[0])
        if form == "via":  # the entries of idx in the order of ids
            order, path = (self.get(encoding_name(k, space, p)) for k, p in zip(("ids", "idx"), paths, strict=True))
            return path if order is self._built.get(f"arange_{space}") else path.index_select(0, order)
        if form in ("len", "ell", "reg", "hyb"):
            return self._format(form, space, *paths)
        return self._order(space, paths)

    def _format(self, form: str, space: str, path: str, onward: str | None = None) -> Tensor:
        """Builds encodings of ELLPACK (`len`, `ell`) and of the hybrid of CSR and COO (`reg`, `hyb`)."""
        starts = self.get(encoding_name("ptr", space, path))
        if form == "len":
            return formats.lengths(starts)
        if form == "reg":
            return formats.regular_pointers(starts)
        rows = self.get(
            encoding_name("ids", space, path) if onward is None else encoding_name("via", space, path, onward)
        )
        return formats.padded(rows, starts) if form == "ell" else formats.hybrid(rows, starts)

    def _index(self, space: str, path: str) -> Tensor:
        edges = self.edges
        if path == "edge":
            bounds = counting.type_bounds(edges)
            starts = (self.get(f"ptr_E_{path}").long() for path in PAIRS.values())
            pairs = (torch.searchsorted(pair_starts, bounds).diff() for pair_starts in starts)
            own = counting.of_types(edges, counting.in_part(part(space), *pairs), bounds)
            return torch.nonzero_static(own, size=self.size(space)).flatten().to(self._dtype)
        if space == "E" and path in ("src", "dst"):
            return edges.src if path == "src" else edges.dst
        if space == "E" and path == "etype":
            return edges.edge_type.contiguous()
        if path == "one":
            return torch.zeros(self.size(space), dtype=self._dtype, device=self._device)
        if path == "ntype":
            types = edges.src_type if space == "NS" else edges.dst_type
            return types if types is not None else self._index(space, "one")
        if space == "R":
            wrong = self.counts.mixed.get(path, self.size("R"))
            if wrong < self.size("R"):
                end = "source" if path == "srctype" else "destination"
                raise GraphError(
                    f"Edge type {edges.edge_type_names[wrong]} has {end} nodes of several types, so that it does not "
                    f"tell the {path} that the program asks for; give every pair of node types an edge type of its own."
                )
            return self._joined_types(self._index("E", path))
        if path in ("srctype", "dsttype"):
            if (edges.src_type if path == "srctype" else edges.dst_type) is None:
                return self._index(space, "one")
            ends, nodes = ("src", "NS") if path == "srctype" else ("dst", "ND")
            return self.get(f"idx_{nodes}_ntype").index_select(0, self.get(f"idx_{space}_{ends}"))
        if path == "typedsrc":
            return edges.edge_type * self.size("NS") + edges.src
        return self._pair_index(space, path)

    def _pair_index(self, space: str, path: str) -> Tensor:
        """Returns where rows of U (unique etype, src) or V (unique etype, dst) lead, or the row of each edge there."""
        end = "src" if space == "U" or path == "srcpair" else "dst"
        # Edges in the order (etype, end); the order by destination is the canonical one.
        order = self.get("ids_E_etype_src") if end == "src" else None
        starts = self.get(f"ptr_E_{end}pair")
        if space != "E":
            firsts = starts[:-1] if order is None else order.index_select(0, starts[:-1])
            return self.get(f"idx_E_{path}").index_select(0, firsts)
        return groups_of_rows(starts, order, self.size("E"))

    def _pointers(self, space: str, path: str) -> Tensor:
        if path in ("srcpair", "dstpair"):
            count = self.size(target_space(space, path))
            # Counting the pairs builds it as well.
            starts = self._built.get(f"ptr_{space}_{path}")
            if starts is None:
                starts = counting.pair_starts(self.edges, path, count + 1, self._order_by_source()).to(self._dtype)
            return starts
        targets = self.get(encoding_name("idx", space, path))
        return pointers(targets, self.size(target_space(space, path)), self._dtype)

    def _order(self, space: str, paths: tuple[str, ...]) -> Tensor:
        if encoding_name("ids", space, *paths) in BY_SOURCE:
            return self.get("ids_E_etype_src")  # both order edges by (etype, src)
        if space == "E" and paths == ("src",) and self.size("R") == 1:
            return self.get("ids_E_etype_src")
        telling = [path for path in paths if path != "etype" or self.size("R") > 1]
        keys = [(self.get(f"idx_{space}_{path}"), self.size(target_space(space, path))) for path in telling]
        canonical = space == "E" and paths == ("etype", "dst")[: len(paths)]
        order = None
        if keys and not canonical:
            order = stable_order(keys, ask=sorting.at_hand(self.edges.src), dtype=self._dtype)
        return self._arange(space) if order is None else order

    def _arange(self, space: str) -> Tensor:
        """Returns the rows of a space in their present order."""
        return self.once(
            f"arange_{space}", lambda: torch.arange(self.size(space), dtype=self._dtype, device=self._device)
        )
