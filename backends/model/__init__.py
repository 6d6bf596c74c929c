"""The transformer as numbers: weight shapes, operations with FLOPs and bytes, saved activations."""
