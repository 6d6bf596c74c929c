"""Pareto searches: the exact front of a run, its hypervolume and knee, what proposers are told of it, and reports."""
