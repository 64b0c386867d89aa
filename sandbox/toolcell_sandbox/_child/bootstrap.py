"""The first code of a zygote: `python -I -S bootstrap.py FD`, FD its end of the control link."""

import sys


def main() -> None:
    """Hear who to be, and hand over to the zygote."""
    import os

    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    # Last, and only until our own modules are loaded: nothing there may shadow the library's.
    sys.path.append(root)
    from toolcell_sandbox._child import links, zygote

    sys.path.remove(root)
    sys.dont_write_bytecode = True
    control = links.of(int(sys.argv[1]))
    sys.argv = [""]
    told, _ = links.receive(control)
    if told is not None:
        zygote.run(control, told)
    os._exit(0)


if __name__ == "__main__":
    main()
