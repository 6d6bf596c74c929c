"""The loop: `search.py` asks, launches and tells; the other files are its hands, its record and its watchers."""
