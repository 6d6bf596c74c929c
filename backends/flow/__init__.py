"""The built-in simulator: events over the execution graph, with collectives that contend on a modelled network."""
