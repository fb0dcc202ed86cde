"""What an open log does by the clock: checkpoints, snapshots, deletion, scrubbing."""
