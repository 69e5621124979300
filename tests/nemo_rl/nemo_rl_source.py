"""Whether NeMo-RL itself is here, and how a test says that it needs it: ``needs_nemo_rl``, or for a whole module

    pytest.importorskip("nemo_rl.algorithms", reason=REASON)

before the imports that the stand-ins do not serve.
"""

from __future__ import annotations

import os

import pytest

SOURCE = os.environ.get("NEMO_RL_SOURCE", "")
REASON = "NEMO_RL_SOURCE names no checkout of NeMo-RL v0.7.0 (tests/nemo_rl/run.py makes a place for these tests)"
needs_nemo_rl = pytest.mark.skipif(not SOURCE, reason=REASON)
