"""How far a policy carries: the cases it is tried in, what it gives there, and the metric that a search can score."""
