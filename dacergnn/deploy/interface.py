"""The C interface of an exported model: its header, the source behind it, and a manifest."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from string import Template
from typing import Any

import sympy
import torch

from dacergnn._version import VERSION
from dacergnn.deploy.forms import Form, Kind
from dacergnn.deploy.literals import literal
from dacergnn.deploy.network import Array, Network
from dacergnn.deploy.types import c_type
from dacergnn.deploy.weights import WeightFile

_HEADER = Template("""\
/* The model "$name", exported by dacergnn $version. All functions may be called from several threads. */
#ifndef ${NAME}_H
#define ${NAME}_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What functions return; ${name}_message tells more. */
enum {
  ${NAME}_DONE = 0,
  ${NAME}_BAD_INPUT = 1,     /* an argument is wrong: a size, an address, an index out of range */
  ${NAME}_NO_MEMORY = 2,
  ${NAME}_BAD_WEIGHTS = 3,   /* the file of weights is missing, or belongs to another model */
  ${NAME}_NO_PROCESSOR = 4,  /* the library has no kernels for this processor */
  ${NAME}_TOO_SMALL = 5,     /* the memory for a result is too small; its sizes are set */
  ${NAME}_DEVICE = 6         /* a CUDA device is missing, or refuses a call */
};

/* Arguments of a call, in order. */
enum {
$inputs
  ${NAME}_INPUTS = $input_count
};

/* Results of a call, in order. */
enum {
$outputs
  ${NAME}_OUTPUTS = $output_count
};

/* An argument: numbers without gaps, the last axis first in memory, and the size of each axis.$inputs_lie */
typedef struct {
  const void *data;
  int64_t sizes[4];
} ${name}_input;

/* A result: memory of the caller and its bytes. A call sets the sizes, also if the memory is too small.$outputs_lie */
typedef struct {
  void *data;
  int64_t bytes;
  int64_t sizes[4];
} ${name}_output;

/* For tables of all arguments and results: static const ${name}_form forms[] = ${NAME}_INPUT_FORMS; */
typedef struct {
  const char *label, *type;  /* as in the manifest, such as float32 */
  int bytes, axes;           /* of an element; how many sizes there are */
} ${name}_form;
#define ${NAME}_INPUT_FORMS {$input_forms}
#define ${NAME}_OUTPUT_FORMS {$output_forms}

typedef struct ${name} ${name};

/* Makes a model. The weights are $weights.$made */
int ${name}_create(const char *weights, ${name} **made);

/* Runs a call on arrays of ${NAME}_INPUTS arguments and ${NAME}_OUTPUTS results, $how
   Nothing is written to the results of a call that fails, except their sizes. Memory of results may not overlap that of
   others, or of arguments. */
int ${name}_run(const ${name} *model, const ${name}_input *inputs, ${name}_output *outputs, $last);

/* Returns the text of the last error of the calling thread, in English. */
const char *${name}_message(void);

/* Returns the kind of processor whose kernels run; "" for NULL. */
const char *${name}_processor(const ${name} *model);

/* Tells the exported model from others: equal to ${NAME}_FINGERPRINT if this header belongs to the library. */
const char *${name}_fingerprint(void);
#define ${NAME}_FINGERPRINT "$fingerprint"

/* Frees the memory that calls keep for later ones. */
void ${name}_trim(const ${name} *model);

/* Frees a model that no call uses; NULL is no model. */
void ${name}_destroy(${name} *model);

#ifdef __cplusplus
}
#endif

#endif
""")
_SOURCE = Template("""\
#include "deploy/$library"

$declarations
namespace {
$tables
constexpr std::int64_t offsets[] = {$offsets};
constexpr char header[] = $header;
}  // namespace
$embedded
static const deploy::$description description = {
    {"$name", offsets, $weight_count, header, $header_bytes, $weight_bytes, $address}, $fields};

#define PUBLIC extern "C" __attribute__((visibility("default")))

PUBLIC int ${name}_create(const char *weights, deploy::$model **made) {
  return deploy::create(description, weights, made);
}
PUBLIC int ${name}_run(const deploy::$model *model, const deploy::Input *inputs, deploy::Output *outputs, $last) {
  return deploy::run(model, inputs, outputs, $last_name);
}
PUBLIC const char *${name}_message() { return deploy::message().text; }
PUBLIC const char *${name}_fingerprint() { return "$fingerprint"; }
PUBLIC const char *${name}_processor(const deploy::$model *model) { return model ? model->processor() : ""; }
PUBLIC void ${name}_trim(const deploy::$model *model) {
  if (model) model->trim();
}
PUBLIC void ${name}_destroy(deploy::$model *model) { delete model; }
""")
_EMBEDDED = Template("""
asm(".section .rodata\\n.balign 64\\n.globl ${name}_weights\\n.hidden ${name}_weights\\n${name}_weights:\\n"
    ".incbin \\"$file\\"\\n.previous");
extern "C" const char ${name}_weights[];
""")


def header(name: str, network: Network, fingerprint: str, kind: Kind, *, embedded: bool) -> str:
    """Returns the header of a model."""
    inputs, outputs = _names(name, network)
    where = "in the library; pass NULL, or the path of other weights of the same form"
    return _HEADER.substitute(
        name=name, NAME=name.upper(), version=VERSION, fingerprint=fingerprint,
        input_count=len(inputs), output_count=len(outputs),
        inputs=_constants(network, inputs, [(array.label, array) for array in network.inputs]),
        outputs=_constants(network, outputs, network.outputs),
        input_forms=_forms([(array.label, array) for array in network.inputs]),
        output_forms=_forms(network.outputs),
        weights=where if embedded else "in a file; pass its path",
        last=kind.last, how=kind.how, made=kind.made, inputs_lie=kind.inputs_lie, outputs_lie=kind.outputs_lie,
    )  # fmt: skip


def constant_names(name: str, inputs: Sequence[str], outputs: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns the names of constants of C for arguments and results, which differ from each other and all others."""
    taken = set(re.findall(r"\$\{NAME\}(\w+)", _HEADER.template))

    def own(label: str) -> str:
        chosen = _spelled("_" + re.sub(r"[^A-Za-z0-9]+", "_", label).strip("_").upper(), taken)
        taken.add(chosen)
        return name.upper() + chosen

    return [own(label) for label in inputs], [own(label) for label in outputs]


def _spelled(base: str, taken: set[str]) -> str:
    """Returns a name that is not taken: ``base``, perhaps with a number behind it."""
    spellings = (base if count == 1 else f"{base}_{count}" for count in itertools.count(1))
    return next(spelling for spelling in spellings if spelling not in taken)


def _names(name: str, network: Network) -> tuple[list[str], list[str]]:
    inputs = [array.label for array in network.inputs]
    return constant_names(name, inputs, [label for label, _ in network.outputs])


def _constants(network: Network, names: Sequence[str], arrays: Sequence[tuple[str, Array]]) -> str:
    lines: list[str] = []
    for i, (own, (label, array)) in enumerate(zip(names, arrays, strict=True)):
        form = f"{c_type(array.dtype).removeprefix('std::')} [{', '.join(map(str, _shape(network, array)))}]"
        lines.append(f"  {own} = {i}, /* {label.replace('*/', '* /').replace('/*', '/ *')}: {form} */")
    return "\n".join(lines)


def _shape(network: Network, array: Array) -> list[int | str]:
    """Returns the sizes of an array; those that may differ from call to call are named after an argument."""
    names: dict[sympy.Symbol, sympy.Symbol] = {}
    for own in network.inputs:
        for size in own.shape:
            if isinstance(size, sympy.Symbol) and size not in names:
                base = re.sub(r"\W+", "_", own.label.rpartition(".")[2])
                names[size] = sympy.Symbol(_spelled(base, {str(name) for name in names.values()}))
    return [int(size) if size.is_Integer else str(size.xreplace(names)) for size in array.shape]


def _forms(arrays: Sequence[tuple[str, Array]]) -> str:
    """Returns the fields of ``model_form`` of arrays, each on a line of a macro."""
    return ", ".join(
        f'\\\n  {{{json.dumps(label, ensure_ascii=False)}, "{str(array.dtype).removeprefix("torch.")}", '
        f"{array.dtype.itemsize}, {len(array.shape)}}}"
        for label, array in arrays
    )


def source(name: str, form: Form, weights: WeightFile, order: Sequence[str], file: str | None, fingerprint: str) -> str:
    """Returns the source of the functions that the header declares.

    Args:
        order: The weights in the order in which the kernels number them.
        file: The path of the weights to put into the library; None to read them from a file.
    """
    kind = form.kind
    return _SOURCE.substitute(
        name=name, fingerprint=fingerprint,
        library=kind.library, model=kind.model, description=kind.description,
        last=kind.last, last_name=re.split(r"\W+", kind.last)[-1],
        declarations=form.declarations, tables=form.tables, fields=form.fields,
        offsets=", ".join(str(weights.offsets[own]) for own in order) or "0", weight_count=len(order),
        header=literal(weights.header), header_bytes=len(weights.header), weight_bytes=weights.size,
        embedded="" if file is None else _EMBEDDED.substitute(name=name, file=file),
        address="nullptr" if file is None else f"{name}_weights",
    )  # fmt: skip


def manifest(name: str, network: Network, facts: dict[str, Any]) -> dict[str, Any]:
    """Returns a description of a model for programs that call it."""
    inputs, outputs = _names(name, network)

    def described(names: Sequence[str], arrays: Sequence[tuple[str, Array]]) -> list[dict[str, Any]]:
        return [
            {
                "name": label,
                "constant": own,
                "dtype": str(array.dtype).removeprefix("torch."),
                "shape": _shape(network, array),
            }
            for own, (label, array) in zip(names, arrays, strict=True)
        ]

    return {
        "name": name,
        "dacergnn": VERSION,
        "torch": torch.__version__,
        "inputs": described(inputs, [(array.label, array) for array in network.inputs]),
        "outputs": described(outputs, network.outputs),
        **facts,
    }
