"""The edge: owns the request, drafts, and talks to the cloud. `client` and `blocking` are the way in."""
