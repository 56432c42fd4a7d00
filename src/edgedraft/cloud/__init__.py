"""The cloud: a WebSocket shell around the session machines, and one thread that owns the target."""
