"""Trace files of three families (Kineto JSON, XLA profiler JSON, Nsight Systems SQLite) as one columnar `Timeline`."""
