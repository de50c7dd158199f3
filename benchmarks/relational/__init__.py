"""Compares layers of relations with PyG, DGL and plain PyTorch: `python -m benchmarks relational`."""
