"""XLA profiler traces (JAX and PyTorch/XLA on TPU, XLA on GPU): trace.json(.gz) and, with the `xprof` package,
*.xplane.pb."""
