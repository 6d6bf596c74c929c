"""The bundled metric tools, one module each: `SPEC` says what it is, `compute(trace, facts, options)` answers."""
