"""Front ends for the layers of PyTorch Geometric."""
