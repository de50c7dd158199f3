"""A two-layer RGCN node classifier, trained with PyG's layers and with compiled ones, side by side."""
