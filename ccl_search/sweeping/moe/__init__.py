"""The MoE inference topology study as an experiment: its matrix, its figures, and what of it holds here."""
