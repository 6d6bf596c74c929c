"""The record: what a search is about (card, space, plan, objective) and what it left (trials, entries, the store)."""
