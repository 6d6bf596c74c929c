"""Simulators: workload and plan become an execution graph, a simulated timeline, and a trace."""
