# Generated from _async/__init__.py by scripts/gen_sync_client.py (`make client`).
"""The synchronous client, generated."""
