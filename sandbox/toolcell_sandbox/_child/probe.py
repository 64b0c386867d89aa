"""`python -I -S probe.py`: which layers this host lacks, tried one by one; one JSON object."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> None:
    """Try each layer in a child, and print what the ones that failed said."""
    import errno as errnos
    import json
    import os
    import stat

    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sys.path.append(root)
    from toolcell_sandbox._child import ids, syscalls

    sys.path.remove(root)
    sys.dont_write_bytecode = True

    def in_child(act: Callable[[], None]) -> tuple[str, int] | None:
        """What the stage said that failed, or None."""
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                act()
            except OSError as error:
                os.write(write, f"{error.errno or 0} {error.strerror}".encode()[:400])
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read) as file:
            number, _, cause = file.read().partition(" ")
        os.waitpid(pid, 0)
        return (cause, int(number)) if number else None

    def space(flags: int, act: Callable[[], None] = lambda: None) -> Callable[[], None]:
        """Make namespaces, map this user to root in them, then act there."""

        def tried() -> None:
            ready, go = os.pipe()
            said, say = os.pipe()
            pid = syscalls.clone(syscalls.CLONE_NEWUSER | flags)
            if pid == 0:
                try:
                    os.close(go)
                    if os.read(ready, 1):
                        act()
                except OSError as error:
                    os.write(say, f"{error.errno or 0} {error.strerror}".encode()[:400])
                finally:
                    os._exit(0)
            try:
                own = f"0 {os.geteuid()} 1\n", f"0 {os.getegid()} 1\n"
                ids.write_maps(pid, *own, ranged=False)
                os.write(go, b"x")
            finally:
                os.close(go)
                os.close(say)
                with os.fdopen(said) as file:
                    number, _, cause = file.read().partition(" ")
                os.waitpid(pid, 0)
            if number:
                raise OSError(int(number), cause)

        return tried

    def own_root() -> None:
        private = syscalls.MS_REC | syscalls.MS_PRIVATE
        syscalls.mount(None, "/", None, private)
        syscalls.mount("probe", "/usr", "tmpfs", syscalls.MS_NOSUID)

    def own_proc() -> None:
        own_root()
        os.mkdir("/usr/proc")
        syscalls.mount("proc", "/usr/proc", "proc", syscalls.MS_NOSUID)

    def own_overlay() -> None:
        # By doing it: a folder from below that is deleted and made again has to be empty.
        own_root()
        for name in ("lower/folder/file", "masks", "upper", "work", "merged"):
            os.makedirs(f"/usr/{name}")
        data = "lowerdir=/usr/masks:/usr/lower,upperdir=/usr/upper,workdir=/usr/work,userxattr"
        syscalls.mount("probe", "/usr/merged", "overlay", syscalls.MS_NOSUID, data)
        os.mknod("/usr/masks/masked", stat.S_IFCHR, 0)
        os.rmdir("/usr/merged/folder/file")
        os.rmdir("/usr/merged/folder")
        os.mkdir("/usr/merged/folder")
        if os.listdir("/usr/merged/folder"):
            raise OSError(0, "a folder that was deleted and made again is not empty")

    def filtered() -> None:
        import ctypes
        import struct

        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        allow = ctypes.create_string_buffer(struct.pack("=HBBI", 6, 0, 0, 0x7FFF0000))
        program = ctypes.create_string_buffer(struct.pack("@HP", 1, ctypes.addressof(allow)))
        syscalls.prctl(
            syscalls.PR_SET_SECCOMP, syscalls.SECCOMP_MODE_FILTER, ctypes.addressof(program)
        )

    mounts = syscalls.CLONE_NEWNS | syscalls.CLONE_NEWPID
    tries = (
        ("user_namespace", "namespaces", space(0)),
        ("pid_namespace", "namespaces", space(syscalls.CLONE_NEWPID)),
        ("network_namespace", "namespaces", space(syscalls.CLONE_NEWNET)),
        ("ipc_namespace", "namespaces", space(syscalls.CLONE_NEWIPC)),
        ("mount_namespace", "root", space(mounts, own_root)),
        ("mount_namespace", "proc", space(mounts, own_proc)),
        ("overlay", "overlay", space(mounts, own_overlay)),
        ("seccomp", "seccomp", filtered),
    )
    lacks: dict[str, dict[str, str | None]] = {}
    for layer, stage, act in tries:
        failed = in_child(act)
        if failed is not None and layer not in lacks:
            cause, number = failed
            errno = errnos.errorcode.get(number) if number else None
            lacks[layer] = {"stage": stage, "errno": errno, "cause": cause}
    json.dump(lacks, sys.stdout)


if __name__ == "__main__":
    main()
