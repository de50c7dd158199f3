"""Front ends for the layers of DGL."""
