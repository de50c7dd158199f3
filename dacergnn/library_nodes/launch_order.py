"""Orders operators on a device so that as many as possible share launches.

Operators of one step run as soon as their data are ready, because others wait for them. Operators of several steps,
which sum up results of blocks, come later and share launches with more operators. Those that none waits for come last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dacergnn.library_nodes.node import GraphOperator

MOST = 12
"""The most operators that start together, so that the code of a launch does not grow with the program."""


def launched_together(
    operators: Sequence[GraphOperator], steps: Mapping[GraphOperator, int]
) -> list[list[GraphOperator]]:
    """Returns groups of operators that do not wait for each other, in an order in which they can run.

    Args:
        operators: Operators in an order in which they can run.
        steps: Number of launches of each operator, each of which waits for the one before.
    """
    awaited = {name for o in operators for name in o.read_arrays}
    waiting, groups = list(operators), list[list[GraphOperator]]()
    while waiting:
        missing = {name for o in waiting for name in o.written_arrays}
        ready = [o for o in waiting if not missing.intersection(o.read_arrays)]
        if not ready:
            return [*groups, *([o] for o in waiting)]  # a cycle: the verifier reports it
        kinds = (
            [o for o in ready if steps[o] == 1],
            [o for o in ready if awaited.intersection(o.written_arrays)],
            ready,
        )
        group = next(kind for kind in kinds if kind)[:MOST]
        groups.append(group)
        waiting = [o for o in waiting if o not in group]
    return groups
