"""The host folders that are granted besides the workspace, and which of them a role may use."""

from dataclasses import dataclass

from .sensitive import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFolders:
    """Folders that somebody granted by name: absolute, without links, as a jail sees them.

    What lies in `write` may be read as well. A folder with a link on its way is named by where
    the link leads: a jail knows no other name for it.
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()

    def open_to(self, role: Role) -> tuple[str, ...]:
        """Return every folder in which a path may lie in this role."""
        return self.write if role == "write" else (*self.write, *self.read)
