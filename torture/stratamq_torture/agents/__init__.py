"""Agents of a cluster's members over an election store that fails."""
