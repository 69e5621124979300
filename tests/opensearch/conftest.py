from __future__ import annotations

import os
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

LAUNCHER = Path(__file__).resolve().parents[2] / "docker" / "opensearch-jvm"
sys.path.insert(0, str(LAUNCHER))


@pytest.fixture(scope="session")
def opensearch_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real node: the one that FUTARI_TEST_OPENSEARCH names, else one started for this session in a temporary folder.

    Where it cannot be had (no Java, say) the test is skipped, but never in CI (``CI=true``): there it fails. Tests
    share the node, so each uses an index name of its own.
    """
    from node import Node, NodeError, NotInstalled

    given = os.environ.get("FUTARI_TEST_OPENSEARCH", "").rstrip("/")
    if given:
        try:
            with urllib.request.urlopen(f"{given}/_cluster/health", timeout=30) as answer:
                answer.read()
        except OSError as error:
            pytest.fail(
                f"FUTARI_TEST_OPENSEARCH={given}: no node answers there ({error}); start it, or unset the variable"
            )
        yield given
        return
    node = Node(tmp_path_factory.mktemp("opensearch"), deadline=240.0)
    try:
        url = node.__enter__()
    except NodeError as error:
        if isinstance(error, NotInstalled) and os.environ.get("CI", "").lower() not in {"1", "true"}:
            pytest.skip(str(error))
        pytest.fail(str(error))
    yield url
    node.__exit__(None, None, None)
