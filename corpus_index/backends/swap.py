"""Build a folder beside its final place, then swap it in; leave nothing half-written behind."""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

_FULL = "disk full while building the index; free some space and build again"


def disk_error(error: Exception, target: Path) -> OSError:
    """The OSError that a search engine's exception stands for: its text is all that it tells."""
    text = str(error)
    # A writing thread that hit the full disk shows up later as "killed": the free space tells then.
    if "No space left" in text or "os error 28" in text or shutil.disk_usage(_existing(target)).free < 1_000_000:
        return OSError(errno.ENOSPC, _FULL, str(target))
    return OSError(errno.EIO, f"the index could not be written ({text[:200]})", str(target))


@contextmanager
def swapped_in(target: Path) -> Generator[Path]:
    """Yields an empty folder; swapped in as ``target`` when the block ends well, removed when it does not.

    Folders left by dead processes of this machine are cleaned up first.
    """
    target = target.absolute()
    if target.exists() and not target.is_dir():
        raise OSError(errno.ENOTDIR, "the index must be a folder; choose another place", str(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    recover(target)
    building = _beside(target, "building")
    replaced = _beside(target, "replaced")
    building.mkdir()
    try:
        yield building
        if target.exists():
            target.rename(replaced)
        building.rename(target)
        shutil.rmtree(replaced, ignore_errors=True)
    except BaseException as error:
        if replaced.exists() and not target.exists():
            replaced.rename(target)
        shutil.rmtree(building, ignore_errors=True)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise OSError(errno.ENOSPC, _FULL, str(target)) from error
        raise


def recover(target: Path) -> None:
    """Undo what killed builds left: stale folders go; an index that was moved aside comes back."""
    target = target.absolute()
    if not target.parent.is_dir():
        return
    pattern = re.compile(re.escape(f"{target.name}.") + r"(building|replaced)-(.+)-(\d+)")
    for path in sorted(target.parent.iterdir()):
        match = pattern.fullmatch(path.name)
        if match is None or match[2] != host() or alive(int(match[3])):
            continue
        if match[1] == "replaced" and not target.exists():
            path.rename(target)
        else:
            shutil.rmtree(path, ignore_errors=True)


def _beside(target: Path, what: str) -> Path:
    # The host is in the name because a shared folder shows the process ids of other machines.
    return target.with_name(f"{target.name}.{what}-{host()}-{os.getpid()}")


def host() -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", socket.gethostname()) or "host"


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path
