"""What rewrites the policy between trials: an LLM, rules of the trade, or plain samplers."""
