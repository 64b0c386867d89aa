"""The first code in a jail's process: `python -I -S bootstrap.py FD`, FD a memfd of JSON."""

import sys


def main() -> None:
    """Read the configuration and hand over to the launcher."""
    import json
    import os

    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    # Last, and only until our own modules are loaded: nothing there may shadow the library's.
    sys.path.append(root)
    from toolcell_sandbox._child import launcher

    sys.path.remove(root)
    sys.dont_write_bytecode = True
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        config = json.load(file)
    sys.argv = [""]
    launcher.run(config)
    os._exit(0)


if __name__ == "__main__":
    main()
