"""Calls to a large language model: what is asked, how it is sent and retried, what it costs, how it is replayed."""
