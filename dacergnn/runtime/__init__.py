"""From an SDFG of library nodes to a loaded function: lowering, build, cache, memory plan, call."""
