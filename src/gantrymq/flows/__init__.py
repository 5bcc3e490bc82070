"""Use cases as small coroutines: what to ask whom, in which order, and what to do when that fails.

A flow awaits its `Runtime` and other flows, nothing else, so it runs under asyncio and on a plain
thread alike (see `gantrymq.runtime`).
"""
