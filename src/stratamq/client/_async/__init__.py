"""The asyncio client, of which the synchronous one (`_sync`) is generated."""
