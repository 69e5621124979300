"""The SFT data pipeline against a stand-in for a served teacher, over real HTTP, on a bad day:

    uv run benchmarks/sft_data.py [--tasks 120]

The stand-in solves a company's questions by native tool calls and rewrites thoughts. It throws a storm of 429, cuts
streams short, refuses, writes broken calls and wrong answers, and breaks the rules of rewriting. The command is killed
(SIGKILL) twice on its way and given again. Printed: the counts of every stage, and what the server saw.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corpus_index.sources.company import Company
from corpus_index.sources.company_spec import parse_spec

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "training"), str(ROOT / "tests" / "rewards")]
from chat_server import ChatServer, Reply, called, said, serving  # noqa: E402
from served_teacher import USAGE, ServedTeacher  # noqa: E402

COMPANY = "seed=0"
STORM = range(150, 260)  # requests, by number


@dataclass
class BadDay:
    """What goes wrong with a request follows from its body, so that a second run meets the same model."""

    teacher: ServedTeacher
    moods: Counter[str] = field(default_factory=Counter[str])
    tried: Counter[bytes] = field(default_factory=Counter[bytes])
    answered: Counter[bytes] = field(default_factory=Counter[bytes])
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, number: int, body: dict[str, Any]) -> Reply:
        request = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).digest()
        with self.lock:
            self.tried[request] += 1
            first = self.tried[request] == 1
        mood, reply = self._mood(number, body, request, first)
        with self.lock:
            self.moods[mood] += 1
            self.answered[request] += reply.status == 200 and not reply.cut
        return reply

    def _mood(self, number: int, body: dict[str, Any], request: bytes, first: bool) -> tuple[str, Reply]:
        turn, draw = len(body["messages"]) // 2, request[0]
        if number in STORM:
            return "429 in the storm", Reply(429, "slow down", {"Retry-After": "0.3"})
        if first and draw < 13:
            return "stream cut short", Reply(body={"choices": []}, cut=True)
        if first and draw < 26:
            return "503", Reply(503)
        if "tools" not in body:
            return self._rewriting(body, draw)
        whole = hashlib.sha256(body["messages"][1]["content"].encode()).digest()[0]  # of the task
        if turn == 2 and whole < 12:
            return "refusal", said(None, refusal="I do not read other people's mail.", usage=USAGE)
        if turn == 1 and whole > 235:
            return "broken call", called("search_keyword", '{"keywords": ["budget"', usage=USAGE)
        if turn == 1 and 215 < whole <= 235:
            return "answer out of thin air", called("submit", {"answer": "Elm 1", "evidence": ["1"]}, usage=USAGE)
        return "as asked", self.teacher.answer(number, body)

    def _rewriting(self, body: dict[str, Any], draw: int) -> tuple[str, Reply]:
        asked = json.loads(body["messages"][1]["content"])
        thoughts = [f"〈{thought}〉" for thought in asked["thoughts"]]
        if 30 < draw < 45:
            return "rewrite lacks a turn", said(json.dumps({"thoughts": thoughts[1:]}), usage=USAGE)
        if 45 <= draw < 60:
            thoughts[0] += '<tool_call>{"name": "submit"}</tool_call>'
            return "rewrite with a call in it", said(json.dumps({"thoughts": thoughts}), usage=USAGE)
        return "rewritten", said(json.dumps({"thoughts": thoughts}, ensure_ascii=False), usage=USAGE)


def command(server: ChatServer, out: Path, tasks: int) -> list[str]:
    served = f"{{base_url: '{server.url}', model: stand-in, backoff_seconds: 0.05, temperature: 0.0}}"
    return [
        sys.executable, str(ROOT / "examples" / "make_sft_data.py"),
        "--config", str(ROOT / "examples" / "configs" / "sft_data_company.yaml"), "--out", str(out / "data"),
        f"logger.log_dir={out}", f"corpus.source='company:{COMPANY}'", "data.trajectories.thoughts=think",
        "policy.max_total_sequence_length=4096",
        f"data.trajectories.solver_tasks={tasks}", f"data.trajectories.proposer_tasks={tasks // 2}",
        "data.trajectories.teacher.kind=endpoint", f"data.trajectories.teacher.endpoint={served}",
        "data.trajectories.teacher.prompt_price=0.1", "data.trajectories.teacher.completion_price=0.5",
        f"data.trajectories.writer={served}", "data.trajectories.translate=Japanese",
        "data.trajectories.translate_label=ja", "data.trajectories.polish=true",
    ]  # fmt: skip


def run(given: list[str], kill: Callable[[], bool]) -> int:
    """The exit code; ``kill`` is asked ten times a second whether it is time for SIGKILL."""
    with subprocess.Popen(given, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        while process.poll() is None:
            try:
                process.wait(0.1)
            except subprocess.TimeoutExpired:
                if kill():
                    process.send_signal(signal.SIGKILL)
        return process.returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=120)
    args = parser.parse_args()
    day = BadDay(ServedTeacher(Company(parse_spec(COMPANY))))
    with tempfile.TemporaryDirectory() as folder, serving(day.answer) as server:
        given = command(server, Path(folder), args.tasks)
        journal = Path(folder) / "data" / "01_solve.journal"
        translated = Path(folder) / "data" / "04_scenario.json"

        def played() -> int:
            return journal.read_bytes().count(b"\n") - 1 if journal.exists() else 0

        rewriting: list[int] = []

        def amid_rewriting() -> bool:
            if translated.exists():
                rewriting.append(day.moods["rewritten"])
            return bool(rewriting) and rewriting[-1] > 20

        for kill in (lambda: played() > args.tasks // 2, amid_rewriting, lambda: False):
            before = len(server.asked)
            code = run(given, kill)
            print(f"exit code {code} after {played()} episodes; {len(server.asked) - before} requests", flush=True)
        torn = [line for line in journal.read_bytes().splitlines() if not line.startswith(b"{")]
        moods = ", ".join(f"{mood} {count}" for mood, count in day.moods.most_common())
        print(f"\n{len(server.asked)} requests, at most {server.most} at once: {moods}")
        twice = sum(count > 1 for count in day.answered.values())
        print(f"answered twice: {twice} requests (under way at a kill); torn lines: {len(torn)}")


if __name__ == "__main__":
    main()
