"""Policy programs: loading them, running them confined, and the seed policies searches start from."""
