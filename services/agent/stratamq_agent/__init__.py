"""The agent: keeps a cluster's master without a person."""
