"""The `tpu-vm` target: jobs on Cloud TPU VM slices, created for them or there already."""
