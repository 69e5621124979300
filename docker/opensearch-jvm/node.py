"""A single OpenSearch node on this machine, without Docker: for laptops, clusters and CI.

    python docker/opensearch-jvm/node.py start --data DIR     # prints the URL once the node is healthy
    python docker/opensearch-jvm/node.py stop --data DIR

It listens on 127.0.0.1 only and has no security: whoever has an account on this machine can read and write it. All that
it writes is under DIR: ``data/``, ``logs/``, ``config/``, ``node.pid``. OPENSEARCH_JAVA_OPTS adds options for the JVM.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator, Mapping
from pathlib import Path
from types import TracebackType

from distribution import NodeError, NotInstalled, java, opensearch_home

__all__ = ["Node", "NodeError", "NotInstalled", "running_pid", "start", "stop"]

_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d{ISO8601}][%-5p][%c{1.}] %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
logger.node.name = org.opensearch.node.Node
logger.node.level = info
logger.natives.name = org.opensearch.bootstrap.Natives
logger.natives.level = error
"""
_LIBC = ctypes.CDLL(None)  # loaded here: between fork and exec nothing may be imported
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy of the site does not know our loopback


class Node:
    """``with Node(folder) as url:`` a healthy node, stopped at the end; on Linux also when this process dies."""

    def __init__(
        self,
        data: Path,
        *,
        port: int = 0,
        heap: str = "512m",
        deadline: float = 180.0,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self._data, self._port, self._heap, self._deadline, self._settings = data, port, heap, deadline, settings

    def __enter__(self) -> str:
        return start(
            self._data,
            port=self._port,
            heap=self._heap,
            deadline=self._deadline,
            settings=self._settings,
            die_with_parent=True,
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stop(self._data)


def start(
    data: Path,
    *,
    port: int = 0,
    heap: str = "512m",
    deadline: float = 180.0,
    settings: Mapping[str, object] | None = None,
    die_with_parent: bool = False,
) -> str:
    """Start a node on ``data`` and return its URL once it answers.

    Args:
        data: the node's folder; made when absent, its indexes are found again when it has been used before.
        port: 0 takes a free one.
        heap: the JVM's heap as Java writes it ("512m", "4g"). As much again should stay free for the page cache.
        deadline: seconds for coming up, after which the node is killed.
        settings: more of opensearch.yml, such as ``{"thread_pool.search.queue_size": 5000}``; for this start only.
        die_with_parent: ask the kernel to stop the node when the calling thread ends (Linux).

    Raises:
        NodeError: a node runs on ``data`` already, there is no Java or OpenSearch, a setting is one that the launcher
            itself must choose, or the node did not come up; the text then holds the end of its log.
    """
    data = data.absolute()
    home = opensearch_home()
    data.mkdir(parents=True, exist_ok=True)
    with _only_start(data):
        running = running_pid(data)
        if running is not None:
            raise NodeError(
                f"a node is running on {data} already (process {running}, {_address(data) or 'starting'}); use that "
                f"one, stop it (node.py stop --data {data}), or give another folder"
            )
        (data / "logs" / "http.ports").unlink(missing_ok=True)
        _configure(data, home, port, settings or {})
        log_start = _log_file(data).stat().st_size if _log_file(data).exists() else 0
        process = _launch(data, home, heap, die_with_parent)
        _pid_file(data).write_text(f"{process.pid}\n", encoding="ascii")
    try:
        return _wait(data, process, log_start, deadline)
    except BaseException:
        process.kill()
        process.wait()
        _pid_file(data).unlink(missing_ok=True)
        raise


def stop(data: Path, *, patience: float = 30.0) -> bool:
    """Stop the node on ``data``; False when none runs. After ``patience`` seconds it is killed."""
    data = data.absolute()
    pid = running_pid(data)
    if pid is not None:
        for number, wait in ((signal.SIGTERM, patience), (signal.SIGKILL, 10.0)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            until = time.monotonic() + wait
            while running_pid(data) is not None and time.monotonic() < until:
                time.sleep(0.05)
            if running_pid(data) is None:
                break
        else:
            raise NodeError(
                f"process {pid} of the node on {data} does not end, not even when killed; look at it with ps"
            )
    _pid_file(data).unlink(missing_ok=True)
    return pid is not None


def running_pid(data: Path) -> int | None:
    """The process of the node on ``data``; None when there is none, or its number now is another program's."""
    try:
        pid = int(_pid_file(data).read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        return None
    listing = Path(f"/proc/{pid}/cmdline")
    if Path("/proc/self").exists():
        try:
            command = listing.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            return None
    else:
        command = subprocess.run(["ps", "-o", "args=", "-p", str(pid)], capture_output=True, text=True).stdout
    return pid if f"-Dopensearch.path.conf={data.absolute() / 'config'}" in command else None


def _configure(data: Path, home: Path, port: int, given: Mapping[str, object]) -> None:
    for name in ("config", "data", "logs", "tmp"):
        (data / name).mkdir(exist_ok=True)
    ours: dict[str, object] = {
        "cluster.name": "futari",
        "node.name": "futari",
        "discovery.type": "single-node",
        "network.host": "127.0.0.1",
        "http.port": port,
        "transport.port": 0,
        "node.portsfile": True,  # the node writes the port that it got to logs/http.ports
        "path.data": str(data / "data"),
        "path.logs": str(data / "logs"),
    }
    if any(home.glob("plugins/opensearch-security")):  # only in a full distribution that the user has named
        ours["plugins.security.disabled"] = True
    # Every "...host" as well: a node without security stays on the loopback.
    if taken := sorted(name for name in given if name in ours or name.endswith("host")):
        raise NodeError(f"setting {', '.join(taken)}: the launcher chooses it (see --port, --data); leave it out")
    defaults: dict[str, object] = {
        # By default a disk that is 95 % full makes every index read-only, which on a large disk is hundreds of free GB.
        "cluster.routing.allocation.disk.watermark.low": "2gb",
        "cluster.routing.allocation.disk.watermark.high": "1gb",
        "cluster.routing.allocation.disk.watermark.flood_stage": "500mb",
    }
    settings = {**ours, **defaults, **given}
    text = "".join(f"{name}: {json.dumps(value)}\n" for name, value in settings.items())
    (data / "config" / "opensearch.yml").write_text(text, encoding="utf-8")
    (data / "config" / "log4j2.properties").write_text(_LOGGING, encoding="utf-8")


def _launch(data: Path, home: Path, heap: str, die_with_parent: bool) -> subprocess.Popen[bytes]:
    binary, version = java()
    jars = sorted((home / "lib").glob("*.jar"))
    # OpenSearch refuses to run as root, and notices by its native library. In a container with only root: without it.
    without_native = ["-Djna.nosys=true", "-Djna.nounpack=true"] if os.geteuid() == 0 else []
    # What the distribution's own start script passes; the script itself starts three more JVMs to find that out.
    command = [
        str(binary),
        f"-Xms{heap}",
        f"-Xmx{heap}",
        "-XX:+HeapDumpOnOutOfMemoryError",
        f"-XX:HeapDumpPath={data / 'logs'}",
        f"-XX:ErrorFile={data / 'logs' / 'jvm_error_%p.log'}",
        *(["-Djava.security.manager=allow"] if version >= 18 else []),
        *without_native,
        f"-Djava.io.tmpdir={data / 'tmp'}",
        "-Djava.awt.headless=true",
        "-Djava.locale.providers=SPI,COMPAT",
        "-Djava.util.concurrent.ForkJoinPool.common.threadFactory="
        "org.opensearch.secure_sm.SecuredForkJoinWorkerThreadFactory",
        "-Dfile.encoding=UTF-8",
        "-Dio.netty.noUnsafe=true",
        "-Dio.netty.noKeySetOptimization=true",
        "-Dio.netty.recycler.maxCapacityPerThread=0",
        "-Dio.netty.allocator.numDirectArenas=0",
        "-Dlog4j.shutdownHookEnabled=false",
        "-Dlog4j2.disable.jmx=true",
        "--add-opens=java.base/java.io=ALL-UNNAMED",
        f"-Dopensearch.path.home={home}",
        f"-Dopensearch.path.conf={data / 'config'}",
        "-Dopensearch.distribution.type=zip",
        "-Dopensearch.bundled_jdk=false",
        *shlex.split(os.environ.get("OPENSEARCH_JAVA_OPTS", "")),
        "-cp",
        os.pathsep.join(map(str, jars)),
        "org.opensearch.bootstrap.OpenSearch",
    ]
    with _log_file(data).open("ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=data,
            start_new_session=True,  # a Ctrl-C meant for the caller must not hit the node in the middle of a write
            preexec_fn=_die_with_parent if die_with_parent and sys.platform == "linux" else None,
        )


def _die_with_parent() -> None:
    set_parent_death_signal = 1
    _LIBC.prctl(set_parent_death_signal, signal.SIGTERM)


def _wait(data: Path, process: subprocess.Popen[bytes], log_start: int, deadline: float) -> str:
    until = time.monotonic() + deadline
    while True:
        address = _address(data)
        if address is not None and _healthy(address):
            return address
        if process.poll() is not None:
            what = f"ended with exit code {process.returncode} while starting"
        elif time.monotonic() > until:
            what = (
                f"was not healthy after {deadline:.0f} s and is being killed; a slow machine may need a longer deadline"
            )
        else:
            time.sleep(0.1)
            continue
        raise NodeError(f"the node on {data} {what}. The end of {_log_file(data)}:\n{_tail(data, log_start)}")


def _healthy(url: str) -> bool:
    """Whether every primary shard is there. Red is waited for: old indexes are still being opened."""
    try:
        with _DIRECT.open(f"{url}/_cluster/health", timeout=10) as answer:
            return json.load(answer)["status"] in {"green", "yellow"}
    except (OSError, ValueError):
        return False


def _address(data: Path) -> str | None:
    try:
        bound = (data / "logs" / "http.ports").read_text(encoding="ascii").split()
    except FileNotFoundError:
        return None
    return f"http://{bound[0]}" if bound else None


def _tail(data: Path, log_start: int, lines: int = 30) -> str:
    text = _log_file(data).read_bytes()[log_start:].decode("utf-8", errors="replace")
    return "\n".join(text.splitlines()[-lines:]) or "(empty)"


def _pid_file(data: Path) -> Path:
    return data / "node.pid"


def _log_file(data: Path) -> Path:
    return data / "logs" / "node.log"


@contextlib.contextmanager
def _only_start(data: Path) -> Generator[None]:
    with (data / "start.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NodeError(
                f"another process is just starting a node on {data}; wait for it, or give another folder"
            ) from None
        yield


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected KEY=VALUE")
    return name, value


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="node.py", description="A single OpenSearch node on this machine, without Docker."
    )
    commands = parser.add_subparsers(required=True, dest="command", metavar="start | stop")
    starting = commands.add_parser("start", help="start a node and print its URL when it is healthy")
    starting.add_argument("--port", type=int, default=0, help="0: a free one (default)")
    starting.add_argument("--heap", default="512m", help="the JVM's heap, such as 4g (%(default)s)")
    starting.add_argument("--deadline", type=float, default=180.0, help="seconds for coming up (%(default)s)")
    starting.add_argument(
        "--setting", action="append", default=[], type=_setting, metavar="KEY=VALUE",
        help="one more line of opensearch.yml, such as thread_pool.search.queue_size=5000; may be repeated",
    )  # fmt: skip
    stopping = commands.add_parser("stop", help="stop the node")
    for command in (starting, stopping):
        command.add_argument("--data", type=Path, required=True, help="the node's folder")
    options = parser.parse_args(arguments)
    try:
        if options.command == "start":
            settings = dict(options.setting)
            print(
                start(options.data, port=options.port, heap=options.heap, deadline=options.deadline, settings=settings)
            )
        elif not stop(options.data):
            print(f"no node runs on {options.data}", file=sys.stderr)
    except NodeError as error:
        print(f"node.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
