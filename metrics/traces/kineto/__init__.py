"""Kineto Chrome JSON (PyTorch profiler on NVIDIA and AMD, schemas of 2021 to now): one pass, only the events that
count."""
