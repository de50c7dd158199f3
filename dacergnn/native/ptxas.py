"""Reads what ptxas says of kernels: registers, spills and static shared memory, by kernel."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass

VERBOSE = ("-Xptxas", "-v")
"""Options by which nvcc tells what each kernel takes."""
_KERNEL = re.compile(
    r"Compiling entry function '(?P<symbol>[^']+)' for '(?P<arch>\w+)'.*?"
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)


@dataclass(frozen=True)
class KernelUsage:
    """Describes what one kernel takes: per thread registers, bytes of stack and bytes spilled; static shared memory.

    ``name`` is that of its functor, in which ``function#2`` is the second such lambda of a function. ``symbol`` is the
    name by which a library knows the kernel.
    """

    name: str
    arch: str
    registers: int
    stack: int
    spilled: int
    shared: int
    symbol: str

    @property
    def short_name(self) -> str:
        """Returns the templates that the kernel runs, without their arguments."""
        return _short(self.name)


def kernel_usages(messages: str) -> list[KernelUsage]:
    """Returns what each kernel takes, from the messages of nvcc with the options `VERBOSE`."""
    found = [*_KERNEL.finditer(messages)]
    names = readable([match["symbol"] for match in found])
    return [_usage(match, name) for match, name in zip(found, names, strict=True)]


def _usage(found: re.Match[str], name: str) -> KernelUsage:
    shared = re.search(r"(\d+) bytes smem", found["rest"])
    return KernelUsage(
        name=name,
        arch=found["arch"],
        registers=int(found["registers"]),
        stack=int(found["stack"]),
        spilled=int(found["stores"]) + int(found["loads"]),
        shared=int(shared[1]) if shared else 0,
        symbol=found["symbol"],
    )


def readable(symbols: list[str]) -> list[str]:
    """Returns the functors that kernels run, without what is the same in all or said otherwise.

    Where there is no c++filt, the symbols stay as they are.
    """
    if shutil.which("c++filt") is None:
        return symbols
    run = subprocess.run(["c++filt"], input="\n".join(symbols), capture_output=True, text=True, check=True)
    return [_functor(name) for name in run.stdout.splitlines()]


def _functor(name: str) -> str:
    name = re.sub(r"(?:__program_)?(\w+?)(?:_internal)?(?:\([^()]*\))?::\{lambda\([^()]*\)#(\d+)\}", r"\1#\2", name)
    name = name.replace("dacergnn::cuda::", "").replace("decltype(nullptr)", "none").replace("> >", ">>")
    name = re.sub(r"\b(\d+)l\b", r"\1", name)
    functor = re.fullmatch(r"void run<\d+, (?P<functor>.+?)>\((?P=functor)\)", name.replace(" >", ">"))
    return functor["functor"] if functor else name


def _short(name: str) -> str:
    """Returns "2 A" for ``Several<A<...>, 2>``, "A + B" for ``Together<A<...>, B<...>>``, else the part before "<"."""
    symbol = re.match(r"_ZN8dacergnn4cuda3runILi\d+ENS0_(\d+)(\w+)", name)
    if symbol:  # it is too long for c++filt
        return symbol[2][: int(symbol[1])]
    head, _, rest = name.partition("<")
    if head not in ("Several", "Together"):
        return head
    arguments = _arguments(rest)
    if head == "Several":
        return f"{arguments[1]} {_short(arguments[0])}"
    return " + ".join(map(_short, arguments))


def _arguments(text: str) -> list[str]:
    """Returns the arguments of a template, of which ``text`` is what follows the first "<"."""
    depth, arguments = 0, [""]
    for letter in text[:-1]:
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            arguments.append("")
        else:
            arguments[-1] += letter
    return [argument.strip() for argument in arguments]
