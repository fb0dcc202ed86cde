"""The tier service: the log's messages into cheap storage, and back for consumers."""
