"""Makes a loaded function of an SDFG of library nodes: lowering, build, cache, memory plan, call."""
