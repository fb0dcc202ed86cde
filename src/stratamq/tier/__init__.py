"""The tiered store as a library: README.md has its design."""
