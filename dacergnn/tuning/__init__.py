"""Choosing the plan of a program: what there is to choose from, and programs and graphs to learn from."""
