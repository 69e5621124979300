"""A real node's bad moments: killed in the middle of searches and started again; and behind TLS and a password."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from opensearchpy import OpenSearch

from corpus_index.backends import open_index, open_writer
from corpus_index.backends.base import IndexUnavailable
from corpus_index.sources.company import Company
from corpus_index.sources.company_spec import CompanySpec
from environments.protocol import ToolCall
from environments.tools import ToolBox, ToolOutcome, ToolSettings

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from opensearch_lab import Lab, PrivateNode
from opensearch_proxy import Door, door

MAILS = list(Company(CompanySpec(seed=3, projects=8)).documents())
EPISODES = 96
USER, PASSWORD, CA = (f"FUTARI_OPENSEARCH_{name}" for name in ("USER", "PASSWORD", "CA"))


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (USER, PASSWORD, CA):
        monkeypatch.delenv(name, raising=False)


def test_a_node_killed_among_searches_and_started_again_loses_nothing(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue("opensearch_url")  # skips here, or fails in CI, where there is no Java or OpenSearch
    # As patient as the start of a node on a busy machine may need.
    patience = ToolSettings(deadline_seconds=240, retries=50, backoff_seconds=0.05)
    with PrivateNode(tmp_path / "node") as private:
        lab = Lab(private, MAILS, EPISODES, patience)
        first = private.pid

        def killed_and_started() -> None:
            private.kill()
            private.start()

        played = lab.play(patience, killed_and_started)
        assert private.pid != first
        assert played.in_flight == patience.max_concurrent_calls
        assert played.faults == [""] * EPISODES
        assert played.answers == lab.calm.answers
        assert [len(answers) for answers in played.answers] == [3] * EPISODES
        assert lab.lost() == f"0 of {len(MAILS)} mails"

        # And where it stays away: who asked is masked, who had ended is not, and no answer is another one.
        hasty = ToolSettings(deadline_seconds=1, retries=0)
        played = lab.play(hasty, private.kill)
        assert played.masked > 0
        for answers, fault, expected in zip(played.answers, played.faults, lab.calm.answers, strict=True):
            assert answers == (expected[: len(answers)] if fault else expected)
            assert not fault or "no answer within 1 s" in fault or "cannot be reached" in fault


@pytest.fixture
def guarded(opensearch_url: str, tmp_path: Path) -> Iterator[Door]:
    if shutil.which("openssl") is None and os.environ.get("CI", "").lower() not in {"1", "true"}:
        pytest.skip("the certificates are made with the command openssl, which is not here")
    with door(opensearch_url, "ann", "right-secret", tmp_path) as guard:
        yield guard


@pytest.fixture
def locator(guarded: Door, opensearch_url: str) -> Iterator[str]:
    """A name of one's own behind the door; what is under it is deleted."""
    name = f"test-faults-{uuid.uuid4().hex[:8]}"
    yield f"opensearch:{guarded.url}/{name}"
    client = OpenSearch([opensearch_url])
    for index in client.indices.get(index=f"{name}*"):
        client.indices.delete(index=index)
    client.close()


def searched(locator: str) -> list[ToolOutcome]:
    """One search by the blocking client and eight at once by the other."""
    index = open_index(locator)
    tools, call = ToolBox(index, ToolSettings(retries=0)), ToolCall("search_keyword", {"keywords": ["budget"]})

    async def ask() -> list[ToolOutcome]:
        try:
            return await asyncio.gather(*(tools.arun(call) for _ in range(8)))
        finally:
            await tools.aclose()

    try:
        return [tools.run(call), *asyncio.run(ask())]
    finally:
        index.close()


def test_a_real_node_behind_tls_and_a_password(
    guarded: Door, locator: str, opensearch_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(USER, "ann")
    monkeypatch.setenv(PASSWORD, "right-secret")
    monkeypatch.setenv(CA, str(guarded.authority))
    assert open_writer(locator).build(MAILS).documents == len(MAILS)
    asked = guarded.passed
    outcomes = searched(locator)
    assert guarded.passed - asked == 10  # the mapping, and nine searches
    assert guarded.refused == 0
    assert outcomes[0].shown_ids
    assert outcomes == searched(f"opensearch:{opensearch_url}/{locator.rpartition('/')[2]}") == [outcomes[0]] * 9

    # Wrong: at the start, and changed while an index is open.
    index, passed = open_index(locator), guarded.passed
    guarded.password = "new-secret"
    call = ToolCall("search_keyword", {"keywords": ["budget"]})
    tools = ToolBox(index, ToolSettings(retries=0))
    for ask in (lambda: open_index(locator), lambda: tools.run(call), lambda: asyncio.run(tools.arun(call))):
        with pytest.raises(IndexUnavailable, match=rf"credentials \(401\); check {USER} and {PASSWORD}") as caught:
            ask()
        assert "secret" not in str(caught.value)
    index.close()

    # An authority that is not the door's, none, and a file that is not there.
    monkeypatch.setenv(PASSWORD, "new-secret")
    with door(opensearch_url, "ann", "new-secret", tmp_path / "other") as other:
        monkeypatch.setenv(CA, str(other.authority))
        with pytest.raises(IndexUnavailable, match=f"no trusted TLS connection .*{CA}"):
            open_index(locator)
    monkeypatch.delenv(CA)
    with pytest.raises(IndexUnavailable, match=f"no trusted TLS connection .*{CA}"):
        open_index(locator)
    monkeypatch.setenv(CA, str(tmp_path / "nowhere.pem"))
    with pytest.raises(ValueError, match=rf"{CA}=.*nowhere\.pem' is not there"):
        open_index(locator)
    monkeypatch.delenv(CA)
    with pytest.raises(IndexUnavailable, match=r"no trusted TLS connection .*use http://"):
        open_index(f"opensearch:{opensearch_url.replace('http:', 'https:')}/mail")
    assert guarded.passed == passed
