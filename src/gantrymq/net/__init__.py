"""Endpoints that carry commands: asyncio, blocking and in memory; the only sockets in Gantry."""
