"""Restatements of every layer from its formula, in plain PyTorch: the oracle of parity tests.

Each takes the layer (for its parameters and options) and the layer's own arguments, computes in the dtype of
the parameters, and uses no kernel of PyG or DGL.
"""
