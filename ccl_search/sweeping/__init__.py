"""Sweeps: many configs of a space on the simulator, in parallel processes; and the bundled MoE topology study."""
