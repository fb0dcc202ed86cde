"""One module for each page: what it gathers, and its routes."""
