"""The suite of large graphs: steps within a limit of memory against steps without one."""
