"""Compiles C++ and CUDA on this machine, keeps the builds in a cache, and calls them."""
