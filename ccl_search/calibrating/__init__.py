"""Calibration: the simulator's few efficiency factors, fitted to measured trials and kept with their provenance."""
