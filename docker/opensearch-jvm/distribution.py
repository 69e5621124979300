"""The OpenSearch that the node runs: taken from Maven once, kept in a cache folder; and the Java to run it with."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path

VERSION = "2.19.6"
# OpenSearch 2.19 is compiled for Java 11; from 24 on Java has no security manager, without which it does not start.
OLDEST_JAVA, NEWEST_JAVA = 11, 23
JVM_FOLDER = Path("/usr/lib/jvm")
_DESCRIPTOR = """\
description=Analysers, tokenizers and filters that need no further library
version={version}
name=analysis-common
classname=org.opensearch.analysis.common.CommonAnalysisPlugin
java.version=11
opensearch.version={version}
custom.foldername=
extended.plugins=
has.native.controller=false
"""


class NodeError(RuntimeError):
    """The node cannot be had, started or stopped; the text says why and what to do."""


class NotInstalled(NodeError):
    """Java or OpenSearch is missing here and cannot be fetched."""


def opensearch_home() -> Path:
    """An unpacked OpenSearch, fetched by Maven on first use.

    ``FUTARI_OPENSEARCH_HOME`` names another place: an unpacked OpenSearch there is used as it is; an absent folder is
    filled. The default is ``~/.cache/futari/opensearch-VERSION`` (under ``XDG_CACHE_HOME`` where that is set).

    Raises:
        NotInstalled: Maven is missing or fails, or the named folder holds something else.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    given = os.environ.get("FUTARI_OPENSEARCH_HOME")
    home = Path(given).expanduser().absolute() if given else cache.absolute() / "futari" / f"opensearch-{VERSION}"
    if not home.exists():
        _install(home)
    if not any(home.glob("lib/opensearch-core-*.jar")):
        raise NotInstalled(
            f"{home} holds no OpenSearch (expected lib/opensearch-core-*.jar); remove the folder to fetch {VERSION} "
            f"again, or set FUTARI_OPENSEARCH_HOME to an unpacked OpenSearch"
        )
    return home


def java() -> tuple[Path, int]:
    """The first Java that OpenSearch 2.19 runs on, and its version: JAVA_HOME, the PATH, then /usr/lib/jvm.

    Raises:
        NotInstalled: none is found; the text lists what was.
    """
    given = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    candidates = [Path(given) / "bin" / "java"] if given else []
    candidates += [Path(on_path)] if on_path else []
    candidates += sorted(JVM_FOLDER.glob("*/bin/java"))
    found: list[str] = []
    for candidate in candidates:
        version = _java_version(candidate)
        if version is not None and OLDEST_JAVA <= version <= NEWEST_JAVA:
            return candidate, version
        found.append(f"{candidate} ({'does not run' if version is None else f'Java {version}'})")
    raise NotInstalled(
        f"OpenSearch {VERSION} needs Java {OLDEST_JAVA} to {NEWEST_JAVA}; found: {', '.join(found) or 'none'}. Install "
        "one (Debian: apt-get install default-jre-headless) or set JAVA_HOME"
    )


def _java_version(binary: Path) -> int | None:
    try:
        done = subprocess.run([binary, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found.group(1)) if found and done.returncode == 0 else None


def _install(home: Path) -> None:
    """Fetch and unpack beside ``home``, then rename: a half-done download never looks like an OpenSearch."""
    maven = shutil.which("mvn")
    if maven is None:
        raise NotInstalled(
            f"Maven is needed once, to fetch OpenSearch {VERSION} into {home}, and 'mvn' is not on the PATH. Install "
            "it (Debian: apt-get install maven), or set FUTARI_OPENSEARCH_HOME to an unpacked OpenSearch"
        )
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{home.name}-", suffix=".partial", dir=home.parent) as folder:
        fetched = Path(folder) / "fetched"
        _run_maven(maven, fetched)
        with zipfile.ZipFile(fetched / f"opensearch-{VERSION}.zip") as archive:
            archive.extractall(folder)
        unpacked = Path(folder) / f"opensearch-{VERSION}"
        module = unpacked / "modules" / "analysis-common"
        module.mkdir()
        shutil.move(fetched / f"analysis-common-{VERSION}.jar", module)
        (module / "plugin-descriptor.properties").write_text(_DESCRIPTOR.format(version=VERSION), encoding="utf-8")
        try:
            unpacked.rename(home)
        except OSError:
            if not home.is_dir():  # else another process has just done the same
                raise


def _run_maven(maven: str, folder: Path) -> None:
    pom = Path(__file__).with_name("pom.xml")
    command = [maven, "-B", "-q", "--strict-checksums", "-f", str(pom), "dependency:copy"]
    command += [f"-Dopensearch.version={VERSION}", f"-Dfolder={folder}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise NotInstalled(
            f"Maven could not fetch OpenSearch {VERSION}: it ended with {done.returncode}. Check the network and "
            f"Maven's settings (mirror, proxy), or set FUTARI_OPENSEARCH_HOME to an unpacked OpenSearch.\n{tail}"
        )
