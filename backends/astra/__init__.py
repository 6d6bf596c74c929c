"""The backends `astra-sim` and `astra-sim-ns3`: the user's own ASTRA-sim programs, checked, run apart and judged."""
