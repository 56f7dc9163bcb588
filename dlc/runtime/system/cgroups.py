"""The control groups (version 1 or 2) of this process, by which a container limits its resources."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def own_groups(
    controller: str, groups: Path = GROUPS, membership: Path = MEMBERSHIP
) -> Iterator[Path]:
    """The folders of the groups that limit `controller` for this process, with their parent groups.

    In a container the path in `membership` may be that on the host; then the mount itself is the group.
    """
    for line in read(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mount = groups / controllers if controllers else groups
        if controllers and not mount.is_dir():
            mount = groups / controller
        group = mount / path.lstrip("/")
        yield mount
        for folder in (group, *group.parents):
            if not folder.is_relative_to(mount) or folder == mount:
                break
            yield folder


def read(path: Path) -> str:
    """The text of a system file; empty if the file does not exist."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
