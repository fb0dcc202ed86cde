"""The agent: replaces a cluster's lost master without an operator."""
