"""Trains a two-layer RGCN node classifier with PyG's layers and with compiled ones, side by side."""
