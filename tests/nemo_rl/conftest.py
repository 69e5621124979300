"""The tests of this folder run against NeMo-RL v0.7.0 where NEMO_RL_SOURCE names a checkout of it, else against small
stand-ins of its types; ``run.py`` makes an environment for the former. What needs the real one skips without it, with
the reason: see ``nemo_rl_source``.
"""

from __future__ import annotations

import os
import sys
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest
from nemo_rl_source import SOURCE

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
sys.path.append(str(TESTS / "training"))  # company_play, scripted_play, tiny_policy
if SOURCE:
    if not (Path(SOURCE) / "nemo_rl" / "__init__.py").is_file():
        raise pytest.UsageError(f"NEMO_RL_SOURCE is {SOURCE!r}: there is no nemo_rl package in that folder")
    if sys.version_info < (3, 12):  # NeMo-RL asks for 3.13; before 3.12 pydantic refuses typing's own TypedDict
        import typing_extensions

        typing.TypedDict = typing_extensions.TypedDict
    sys.path.insert(0, SOURCE)
    # The actors' processes import both, and the tests' own actors.
    paths = (str(ROOT), SOURCE, str(Path(__file__).parent), str(TESTS / "training"), os.environ.get("PYTHONPATH", ""))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
else:
    import stand_in_nemo_rl

    stand_in_nemo_rl.install()


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """A Ray of two CPUs without a dashboard; nothing with the stand-ins."""
    if not SOURCE:
        yield
        return
    import ray

    for patience in (True, True, False):
        try:
            ray.init("local", num_cpus=2, include_dashboard=False, object_store_memory=200 * 2**20, log_to_driver=False)
            break
        except Exception:  # a node gets 30 s to come up, too few on a crowded machine
            if not patience:
                raise
            ray.shutdown()
    # NeMo-RL's loop looks for "the" Ray of the machine: with another beside it, it would not know which.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", ray.get_runtime_context().gcs_address)
        yield
    ray.shutdown()
