"""A Slurm of one machine, from Debian's packages, without systemd: ``with SlurmNode(folder) as slurm: ...``."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "scancel")
_PLACES = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
# Two partitions over one node: a job of `urgent` sends one of `batch` back to the queue.
_CONFIG = """\
ClusterName=futari
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
KillWait=5
SelectType=select/cons_tres
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=batch Nodes={host} Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes={host} MaxTime=INFINITE State=UP PriorityTier=2
"""


def missing() -> list[str]:
    """The programs of PROGRAMS that this machine lacks."""
    return [name for name in PROGRAMS if shutil.which(name, path=_PLACES) is None]


class SlurmNode:
    """Controller, node daemon and munge on ``folder``, with a key and ports of their own; stopped at the end.

    Raises RuntimeError where a program is missing (Debian: apt-get install slurm-wlm munge), or the node does not come
    up; the text then holds the end of a log.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._daemons: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._environment = os.environ | {"PATH": _PLACES, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def __enter__(self) -> Self:
        if lacking := missing():
            raise RuntimeError(f"{', '.join(lacking)}: not installed; Debian: apt-get install slurm-wlm munge")
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def call(self, *command: str, environment: Mapping[str, str] | None = None, check: bool = True) -> str:
        """One of Slurm's commands; its output. Raises RuntimeError where it fails and ``check`` is set."""
        done = subprocess.run(
            command, env=self._environment | (environment or {}), cwd=self.folder, capture_output=True, text=True
        )
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def submit(self, *arguments: str, **environment: str) -> str:
        """``sbatch ARGUMENTS``; the job's number."""
        return self.call("sbatch", "--parsable", *arguments, environment=environment).strip()

    def job(self, number: str) -> dict[str, str]:
        """What ``scontrol show job`` says of it, such as ``JobState``, ``Restarts``, ``ExitCode``."""
        text = self.call("scontrol", "show", "job", number, "--oneliner")
        return dict(pair.split("=", 1) for pair in text.split() if "=" in pair)

    def wait(self, number: str, happened: Callable[[dict[str, str]], bool], *, seconds: float) -> dict[str, str]:
        """Look at the job until ``happened``. Raises RuntimeError with its last state after ``seconds``."""
        until = time.monotonic() + seconds
        while not happened(job := self.job(number)):
            if time.monotonic() > until:
                raise RuntimeError(f"job {number} is {job['JobState']} ({job.get('Reason')}) after {seconds:.0f} s")
            time.sleep(0.2)
        return job

    def release(self, number: str) -> None:
        """A requeued job is kept back for two minutes, so that its nodes can be cleaned; here it starts in seconds."""
        time.sleep(2.0)  # the node daemon refuses an attempt whose credential is not younger than the last one's end

        def started(job: dict[str, str]) -> bool:
            if job["JobState"] == "PENDING":  # refused while the last attempt is still being cleared away
                self.call("scontrol", "update", f"JobId={number}", "StartTime=now", check=False)
            return job["JobState"] in {"RUNNING", "COMPLETED"}

        self.wait(number, started, seconds=120)

    def _start(self) -> None:
        for name in ("state", "spool", "logs"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(256))
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
        ports = _free_ports(2)
        text = _CONFIG.format(
            host=socket.gethostname(), folder=self.folder, user=user, cpus=os.cpu_count(), controller_port=ports[0],
            node_port=ports[1],
        )  # fmt: skip
        (self.folder / "slurm.conf").write_text(text, encoding="utf-8")
        self._daemon(
            "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={self.folder}/munge.socket",
            f"--pid-file={self.folder}/munged.pid", f"--seed-file={self.folder}/munged.seed",
        )  # fmt: skip
        self._until("munge", (self.folder / "munge.socket").exists)
        self._daemon("slurmctld", "-D")
        self._until("slurmctld", lambda: "UP" in self.call("scontrol", "ping", check=False))
        self._daemon("slurmd", "-D", "-N", socket.gethostname())
        show = ("scontrol", "show", "node", "--oneliner")
        self._until("the node", lambda: re.search(r"State=IDLE\s", self.call(*show, check=False)) is not None)

    def _daemon(self, *command: str) -> None:
        with (self.folder / "logs" / f"{command[0]}.log").open("wb") as log:
            process = subprocess.Popen(
                command, env=self._environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self._daemons.append((command[0], process))

    def _until(self, what: str, ready: Callable[[], bool], seconds: float = 30.0) -> None:
        until = time.monotonic() + seconds
        while not ready():
            dead = [name for name, process in self._daemons if process.poll() is not None]
            if dead or time.monotonic() > until:
                name = dead[0] if dead else self._daemons[-1][0]
                tail = (self.folder / "logs" / f"{name}.log").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{what} did not come up; the end of {name}'s log:\n{tail}")
            time.sleep(0.1)

    def _stop(self) -> None:
        if any(name == "slurmd" for name, _ in self._daemons):
            self.call("scancel", "--partition=batch", check=False)
            self.call("scancel", "--partition=urgent", check=False)
            until = time.monotonic() + 15
            while time.monotonic() < until and self.call("squeue", "--noheader", check=False).strip():
                time.sleep(0.2)
        for _, process in reversed(self._daemons):
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._daemons.clear()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
