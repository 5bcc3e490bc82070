"""The `gantry` command, behind an entry that can say what to install where click is missing."""

from __future__ import annotations

import sys


def entry() -> None:
    """Run `gantry` with the arguments of this process, and end it."""
    try:
        from gantrymq.cli.main import run

        code = run(sys.argv[1:])
    except ModuleNotFoundError as missing:
        if missing.name != "click":
            raise
        sys.exit("gantry: this command needs click: pip install 'gantrymq[server]'")
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


main = entry
"""The same by the name that the `gantry` script has for it, until the module `main` is imported."""
