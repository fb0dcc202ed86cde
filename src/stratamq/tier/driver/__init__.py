"""The storages of a tier: calls as values, and what performs them."""
