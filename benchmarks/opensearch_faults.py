"""What a search node's faults cost, on real nodes: each is caused, and what was lost is counted. A Markdown table.

    uv run benchmarks/opensearch_faults.py [--only PATTERN]

It starts nodes of its own in a temporary folder (docker/opensearch-jvm, heap 512 MB), one after the other, with a small
synthetic company, and takes some minutes. Exit code 1 when an outcome is another one.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

from opensearch_lab import Lab, Played, PrivateNode, Wrong, expect
from opensearch_play import COMPANY, Harm, self_play, settings, small_firm, train_metrics
from opensearch_proxy import door
from scripted_play import written

from corpus_index.backends import open_index, open_writer, opensearch_writer
from corpus_index.backends.base import IndexMissing, IndexUnavailable
from corpus_index.backends.opensearch_client import CA, PASSWORD, USER, Connection, parse_address
from corpus_index.backends.opensearch_mapping import FORMAT, META
from corpus_index.document import Document
from environments.tools import ToolSettings
from training.checkpoint import CheckpointManager
from training.faults import FaultStop
from training.recipe import open_board

HEADER = ("fault", "what was done", "what the user or the run saw", "lost")
SHOWN = 300  # characters of a message
EPISODES, COPIES, HALF = 256, 8, 1_000
PATIENT = ToolSettings(deadline_seconds=300, retries=50, backoff_seconds=0.05)
HASTY = ToolSettings(deadline_seconds=3)
ONCE = ToolSettings(retries=0)
FIRM = small_firm()
Row = tuple[str, str, str, str]


def failure(call: Callable[[], object], *says: str, kind: type[Exception] = IndexUnavailable) -> str:
    try:
        call()
    except kind as error:
        expect(type(error) is kind, f"{error!r} instead of a plain {kind.__name__}")
        for part in says:
            expect(part in str(error), f"{part!r} is not in: {error}")
        return str(error)
    raise Wrong(f"no {kind.__name__} was raised")


def down_at_start(lab: Lab) -> Iterator[Row]:
    lab.node.stop()
    config = settings(f"corpus.index='{lab.locator}'", f"corpus.source='{COMPANY}'")
    began = time.monotonic()
    saw = failure(lambda: open_board(config, lambda text: expect(False, text)), "cannot be reached", "is it running")
    took = time.monotonic() - began
    lab.node.start()
    yield "node down at start", "a run started without its node", f"after {took:.0f} s: {saw}", lab.lost()


def killed_and_back(lab: Lab) -> Iterator[Row]:
    down: list[float] = []

    def harm() -> None:
        began, before = time.monotonic(), lab.node.pid
        lab.node.kill()
        lab.node.start()
        expect(lab.node.pid != before, "the node was not killed")
        down.append(time.monotonic() - began)

    played = lab.play(PATIENT, harm)
    expect(not played.masked, f"{played.masked} episodes masked: {set(played.faults)}")
    expect(played.in_flight == PATIENT.max_concurrent_calls, f"{played.in_flight} calls were in flight")
    done = f"SIGKILL with {EPISODES} episodes searching, started again on the same data and port {down[0]:.0f} s later"
    saw = f"nothing: {played.in_flight} calls were in flight and {played.waiting} waiting, all were answered, as before"
    yield "node killed in a rollout, back within the deadline", done, saw, lab.lost(played)


def killed_for_good(lab: Lab) -> Iterator[Row]:
    runs = Path(tempfile.mkdtemp(dir=lab.node.folder))

    def run(name: str, *overrides: str, harm: Harm | None = None, mend: Harm | None = None) -> float:
        config = settings("tools.deadline_seconds=12", *overrides)
        hooks = [{3: hook} if hook else {} for hook in (harm, mend)]  # rollout 3: the Solvers of step 2
        return self_play(FIRM, open_index(lab.locator), runs / name, config, harm=hooks[0], mend=hooks[1]).weight

    unbroken = run("unbroken")
    stopped = partial(run, "stopped", harm=lab.node.kill)
    saw = failure(stopped, "step 2 was given up", "cannot be reached", "same command", kind=FaultStop)
    saved = CheckpointManager(runs / "stopped/checkpoints").latest()
    expect(saved is not None and saved.step == 1, f"the checkpoint is {saved}")
    lab.node.start()
    expect(run("stopped") == unbroken, "the resumed run ends with another weight")
    expect(written(runs / "stopped") == written(runs / "unbroken"), "metrics or rollouts of the resumed run are others")
    done = "SIGKILL in step 2 of 3, not back within `tools.deadline_seconds`; `env.on_faults: stop`"
    lost = f"0 of 3 updates: the run resumed with weight, metrics and rollouts of an unbroken one; {lab.lost()}"
    yield "node killed in self-play, stays down", done, saw, lost

    run("went on", "env.on_faults=continue", harm=lab.node.kill, mend=lab.node.start)
    metrics, [warning] = train_metrics(runs / "went on"), warnings(runs / "went on")
    skipped = [int(step["update/skipped"]) for step in metrics]
    expect(skipped == [0, 1, 0], f"updates skipped: {skipped}")
    expect(metrics[0] == train_metrics(runs / "unbroken")[0], "step 1 is another one")
    done = "the same with `env.on_faults: continue`, the node back for step 3"
    lost = f"{metrics[1]['faults/rollouts']:.0f} rollouts masked, {sum(skipped)} of 3 updates left out; {lab.lost()}"
    yield "", done, warning, lost


def slow(lab: Lab) -> Iterator[Row]:
    def stall(seconds: float) -> None:
        lab.node.signal(signal.SIGSTOP)
        time.sleep(seconds)
        lab.node.signal(signal.SIGCONT)

    played = lab.play(PATIENT, partial(stall, 13))
    expect(not played.masked, f"{played.masked} episodes masked: {set(played.faults)}")
    saw = f"nothing: {played.in_flight} calls in flight waited past a request's 10 s, were sent again and answered"
    yield "slow node", "SIGSTOP for 13 s in a rollout, then SIGCONT", saw, lab.lost(played)

    played = lab.play(HASTY, partial(stall, 6))
    saw, lost = masked(played, lab, "no answer within 3 s")
    yield "", "SIGSTOP for 6 s with `tools.deadline_seconds: 3`", saw, lost


def killed_in_a_build(lab: Lab) -> Iterator[Row]:
    more, before = copies(lab.mails), lab.indexes()
    code, out, err = build_without_node(lab, 600, lab.node.start)
    expect(code == 0, f"the build ended with {code}: {err}")
    expect(len(lab.indexes()) == 1 and lab.indexes() != before, f"{lab.indexes()} instead of one new index")
    saw = f"nothing: the build waited, went on and counted {out} mails"
    done = f"SIGKILL half way through a rebuild with {len(more):,} mails, started again at once"
    yield "node killed in a build (bulk)", done, saw, lab.lost(mails=more)

    open_writer(lab.locator).build(lab.mails)
    before = lab.indexes()
    code, out, err = build_without_node(lab, 5, lambda: None)
    expect(code == 1 and "cannot be reached" in err, f"the build ended with {code}: {out} {err}")
    lab.node.start()
    lost, after = lab.lost(), lab.indexes()
    expect(set(before) < set(after) and len(after) == 2, f"{after} after {before}")
    rebuilt = open_writer(lab.locator).build(more).documents
    expect(rebuilt == len(more) and len(lab.indexes()) == 1, f"{rebuilt} mails rebuilt in {lab.indexes()}")
    lost = f"{lost} of the old index, which serves; the next build removed the half one: {lab.lost(mails=more)}"
    open_writer(lab.locator).build(lab.mails)
    yield "", "the same, and down past the build's deadline (5 s here; 600 s by default)", err, lost


def password_and_tls(lab: Lab) -> Iterator[Row]:
    folder = Path(tempfile.mkdtemp(dir=lab.node.folder))
    with door(lab.node.url, "ann", "right-secret", folder) as guard:
        locator, here = f"opensearch:{guard.url}/mail", {USER: "ann", CA: str(guard.authority)}
        with patch.dict(os.environ, here | {PASSWORD: "right-secret"}):
            played = lab.play(PATIENT, locator=locator)
            expect(not played.masked and guard.passed > 0, f"{guard.passed} requests, faults {set(played.faults)}")
            saw = f"nothing: {guard.passed:,} requests passed, every answer as without the proxy"
            yield (
                "(TLS and password right)",
                "user, password and CA set, a TLS proxy before the node",
                saw,
                lab.lost(played),
            )
            played = lab.play(ONCE, partial(setattr, guard, "password", "new-secret"), locator)
            saw, lost = masked(played, lab, "(401)", PASSWORD)
            expect("secret" not in "".join(played.faults), "the password is in the message")
            yield "wrong password", "the password changed in the middle of a rollout", saw, lost
        passed = guard.passed
        with patch.dict(os.environ, here | {PASSWORD: "wrong-secret"}):
            saw = failure(lambda: open_index(locator), "(401)", USER, PASSWORD)
            expect("secret" not in saw, "the password is in the message")
            yield "", "a run started with a wrong password", saw, lab.lost()
        with patch.dict(os.environ, {USER: "ann", PASSWORD: "new-secret"}):
            saw = failure(lambda: open_index(locator), "no trusted TLS connection", CA)
            yield "certificate not trusted", f"right password, {CA} not set", saw, lab.lost()
        expect(guard.passed == passed, "the proxy let something in")
    secure = lab.locator.replace("http:", "https:")
    saw = failure(lambda: open_index(secure), "no trusted TLS connection", "use http://")
    yield "TLS asked of a node that has none", "`https://` in the locator of a plain node", saw, lab.lost()


def other_indexes(lab: Lab) -> Iterator[Row]:
    saw = failure(lambda: open_index(f"opensearch:{lab.node.url}/nobody"), "corpus_index build", kind=IndexMissing)
    yield "index missing", "a name that is not there", saw, lab.lost()
    notes = {"mappings": {"_meta": {META: {**FORMAT, "version": 0, "documents": 3}}}, "aliases": {"old": {}}}
    address = parse_address(f"opensearch:{lab.node.url}/old")
    with closing(Connection(address)) as connection:
        connection.ask(lambda client: client.indices.create(index="old-1", body=notes))
        saw = failure(lambda: open_index(address.locator), "version", "corpus_index build")
        rebuilt = open_writer(address.locator).build(lab.mails).documents
        names = list(connection.ask(lambda client: client.indices.get(index="old*")))
        expect(rebuilt == len(lab.mails) and len(names) == 1, f"{rebuilt} mails in {names}")
    lost = f"{lab.lost()}; a rebuild in its place holds {rebuilt}"
    yield "mapping of an older version", "an index with version 0 in its mapping", saw, lost


def crowded(lab: Lab) -> Iterator[Row]:
    played = lab.play(PATIENT)
    expect(not played.masked, f"{played.masked} episodes masked: {set(played.faults)}")
    with urllib.request.urlopen(f"{lab.node.url}/_cat/thread_pool/search?h=rejected", timeout=30) as answer:
        refused = int(answer.read())
    expect(refused > 0, "the node refused nothing")
    saw = f"nothing: the node refused {refused:,} searches with 429; each was asked again and answered"
    done = f"{EPISODES} episodes at once on a node with one search thread and a queue of one"
    yield "429, back-pressure", done, saw, lab.lost(played)


def masked(played: Played, lab: Lab, *says: str) -> tuple[str, str]:
    """Why episodes were masked, in most cases for the reason that ``says`` this; and what was lost."""
    expect(played.masked > 0, "no episode was masked")
    [(cause, _)] = Counter(filter(None, played.faults)).most_common(1)
    for part in says:
        expect(part in cause, f"{part!r} is not in: {cause}")
    return cause, f"{played.masked} of {EPISODES} episodes masked; beside them {lab.lost(played)}"


def copies(mails: list[Document]) -> list[Document]:
    return [replace(mail, id=f"{copy}-{mail.id}") for copy in range(COPIES) for mail in mails]


def build_without_node(lab: Lab, deadline: float, then: Harm) -> tuple[int, str, str]:
    """Kill the node when a build is half way, then do ``then``. Exit code, output and error of the builder, which is a
    process of its own, as a user's is."""
    command = [sys.executable, __file__, "--half-build", lab.locator, str(deadline)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        expect(child.stdout.readline() == "half\n", "the build did not come half way")
        lab.node.kill()
        child.stdin.write("killed\n")
        child.stdin.flush()
        then()
        out, err = child.communicate(timeout=300)
    return child.returncode, out.strip(), err.strip()


def half_build(locator: str, deadline: float) -> None:
    """A build that says when it is half way and waits for an answer; in a process of its own, as a user's would be."""
    opensearch_writer.BUILDING = opensearch_writer.BUILDING.model_copy(update={"deadline_seconds": deadline})

    def mails() -> Iterator[Document]:
        for number, mail in enumerate(copies(list(FIRM.company.documents()))):
            if number == HALF:
                print("half", flush=True)
                sys.stdin.readline()
            yield mail

    try:
        print(open_writer(locator).build(mails()).documents)
    except IndexUnavailable as error:
        sys.exit(str(error))


def warnings(folder: Path) -> list[str]:
    lines = (folder / "events.log").read_text(encoding="utf-8").splitlines()
    return [line.partition(" warning ")[2].strip() for line in lines if " warning " in line]


def shown(cell: str) -> str:
    text = " ".join(cell.split()).replace("|", "\\|")
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="PATTERN", default="", help="only faults named so: 'killed|slow'")
    parser.add_argument("--half-build", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.half_build:
        half_build(options.half_build[0], float(options.half_build[1]))
        return
    for name in (USER, PASSWORD, CA):
        os.environ.pop(name, None)
    plain = [down_at_start, killed_and_back, killed_for_good, slow, killed_in_a_build, password_and_tls, other_indexes]
    tiny = {"thread_pool.search.size": 1, "thread_pool.search.queue_size": 1}
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="futari-faults-") as folder:
        for name, more, faults in (("plain", {}, plain), ("tiny", tiny, [crowded])):
            chosen = [fault for fault in faults if re.search(options.only, fault.__name__)]
            if not chosen:
                continue
            with PrivateNode(Path(folder) / name, settings=more) as node:
                lab = Lab(node, list(FIRM.company.documents()), EPISODES, PATIENT)
                for fault in chosen:
                    for row in fault(lab):
                        print(row, file=sys.stderr)
                        rows.append(row)
    for cells in (HEADER, ("---",) * len(HEADER), *rows):
        print("| " + " | ".join(shown(cell) for cell in cells) + " |")


if __name__ == "__main__":
    main()
