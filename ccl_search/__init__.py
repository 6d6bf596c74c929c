"""The search: loop, proposers, stoppers, feasibility, reports and the command line."""
