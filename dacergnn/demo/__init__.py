"""Trains a node classifier of two RGAT layers with PyG's layers and with compiled ones, side by side."""
