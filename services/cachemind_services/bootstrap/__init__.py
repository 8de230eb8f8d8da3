"""The only place that names adapters and agents: puts processes together."""
