"""Whole models, captured by torch's own Dynamo: their graphs become networks of programs and functions of torch."""
