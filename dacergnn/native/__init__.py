"""C++ and CUDA compiled on this machine: compilers, the build cache, and calls of what was compiled."""
