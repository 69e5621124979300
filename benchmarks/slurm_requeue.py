"""A run on a real Slurm, requeued twice, beside an unbroken one: uv run benchmarks/slurm_requeue.py [key=value ...]

Sets up a Slurm of this machine alone (benchmarks/slurm_node.py; Debian: apt-get install slurm-wlm munge), submits
slurm/selfplay.sbatch with the quick start cut short, and does to the second run what clusters do: a job of a higher
partition takes the node during the warm start, and Slurm requeues the run; the signal that comes before the time limit
reaches it after step 3, and the job requeues itself. Ends with 1 where the two runs' metrics or rollouts differ in a
byte, or where a job that its user has cancelled comes back.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from slurm_node import SlurmNode

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "training"), str(ROOT)]

from scripted_play import written  # noqa: E402  (the tests' own comparison)

RECIPE = ROOT / "examples" / "configs" / "selfplay_quickstart.yaml"
SHORT = (
    "sft.max_num_steps=5", "sft.companies=1", "grpo.max_num_steps=4", "grpo.max_val_samples=20",
    "selfplay.proposer_prompts_per_step=12", "selfplay.max_solver_groups=6",
    "corpus.source=company:seed=11,projects=20",
    "evaluation.questions=50", "evaluation.bootstrap_samples=50", "checkpointing.save_period=2",
    "logger.wandb_enabled=false", "engine.num_threads=1",
)  # fmt: skip
PATIENCE = 1800.0


class Run:
    """One run folder, and the job that fills it."""

    def __init__(self, slurm: SlurmNode, name: str, overrides: list[str]) -> None:
        self._slurm = slurm
        self.folder = slurm.folder / "runs" / name
        self._log = slurm.folder / f"{name}.log"
        self.job = slurm.submit(
            f"--output={self._log}", str(ROOT / "slurm" / "selfplay.sbatch"), "--config", str(RECIPE), *SHORT,
            *overrides, f"logger.log_dir={slurm.folder / 'runs'}", f"logger.run_name={name}",
            FUTARI_ROOT=str(ROOT), FUTARI_PYTHON=sys.executable, FUTARI_LOG_DIR=str(slurm.folder / "logs" / "jobs"),
        )  # fmt: skip

    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""

    def until(self, happened: Callable[[], bool]) -> None:
        """Raises RuntimeError where the job ends, or PATIENCE does, before it ``happened``."""
        until = time.monotonic() + PATIENCE
        while not happened():
            state = self._slurm.job(self.job)["JobState"]
            if state not in {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING"} or time.monotonic() > until:
                raise RuntimeError(f"job {self.job} is {state} before its moment; its log:\n{self.log()[-3000:]}")
            time.sleep(0.1)

    def finish(self) -> dict[str, str]:
        """Raises RuntimeError where it ends otherwise than well."""
        job = self._slurm.wait(self.job, lambda job: job["JobState"] not in {"PENDING", "RUNNING"}, seconds=PATIENCE)
        if job["JobState"] not in {"COMPLETING", "COMPLETED"} or job["ExitCode"] != "0:0":
            raise RuntimeError(f"job {self.job} ended {job['JobState']} {job['ExitCode']}:\n{self.log()[-3000:]}")
        return job

    def back_in_the_queue(self, times: int) -> None:
        self._slurm.wait(self.job, lambda job: job["Restarts"] == str(times), seconds=60)

    def lines(self, phase: str) -> int:
        """How many lines of that phase metrics.jsonl has."""
        path = self.folder / "metrics.jsonl"
        return path.read_text(encoding="utf-8").count(f'"phase": "{phase}"') if path.exists() else 0


def interrupted(slurm: SlurmNode, overrides: list[str]) -> Run:
    run = Run(slurm, "requeued", overrides)
    run.until(lambda: run.lines("sft") > 0)
    urgent = slurm.submit("--partition=urgent", "--exclusive", "--output=/dev/null", "--wrap=sleep 1")
    run.back_in_the_queue(1)
    slurm.wait(urgent, lambda job: job["JobState"] == "COMPLETED", seconds=60)
    slurm.release(run.job)
    run.until(lambda: run.lines("train") == 3)
    slurm.call("scancel", "--batch", "--signal=USR1", run.job)
    run.back_in_the_queue(2)
    slurm.release(run.job)
    run.finish()
    return run


def cancelled(slurm: SlurmNode, overrides: list[str]) -> dict[str, str]:
    """What has become of a job some seconds after its user has cancelled it."""
    run = Run(slurm, "cancelled", overrides)
    run.until(lambda: "building" in run.log())
    slurm.call("scancel", run.job)
    slurm.wait(run.job, lambda job: job["JobState"] == "CANCELLED", seconds=60)
    time.sleep(3)
    return slurm.job(run.job)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where runs and logs stay; default: a temporary folder")
    args, overrides = parser.parse_known_args()
    with (
        tempfile.TemporaryDirectory(prefix="futari-slurm-") as scratch,
        SlurmNode(args.folder or Path(scratch)) as slurm,
    ):
        print(slurm.call("sinfo", "--version").strip(), flush=True)
        ended = cancelled(slurm, overrides)
        started = time.monotonic()
        unbroken = Run(slurm, "unbroken", overrides)
        unbroken.finish()
        between = time.monotonic()
        requeued = interrupted(slurm, overrides)
        seconds = between - started, time.monotonic() - between
        print(f"--- the job's log\n{requeued.log()}---")
        mine, theirs = written(requeued.folder), written(unbroken.folder)
        differ = sorted(name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name))
        restarts = slurm.job(requeued.job)["Restarts"]
        print(f"unbroken {seconds[0]:.0f} s; requeued {restarts} times {seconds[1]:.0f} s")
        print(f"{len(theirs)} files of metrics and rollouts, {sum(map(len, theirs.values())):,} bytes: ", end="")
        print(f"differ in {', '.join(differ)}" if differ else "equal, byte for byte")
        print(f"cancelled by its user: {ended['JobState']}, requeued {ended['Restarts']} times")
        return int(bool(differ) or ended["JobState"] != "CANCELLED" or ended["Restarts"] != "0")


if __name__ == "__main__":
    sys.exit(main())
