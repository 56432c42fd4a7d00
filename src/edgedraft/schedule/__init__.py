"""Who shares a target pass, and when."""
