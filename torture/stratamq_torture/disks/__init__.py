"""The real services on bad disks: full, read-only, failing. Needs root, loop devices and strace."""
