"""Chooses the plan of a program: the space of plans, a performance model, and random programs and graphs for it."""
