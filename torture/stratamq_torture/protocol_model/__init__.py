"""The protocol of replication and promotion as a small model, searched exhaustively."""
