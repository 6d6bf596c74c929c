"""A published policy elsewhere: what it gives on another cluster, the verdict, and the whole search again, exactly."""
