"""Graphs, groups and networks as other simulators write them: Chakra traces and ASTRA-sim's files."""
