"""Raw records, and the figures derived from them."""
