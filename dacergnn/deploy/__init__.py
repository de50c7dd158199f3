"""Exports trained models, so that they run without Python."""
