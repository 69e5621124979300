"""The SFT stage's data through NeMo-RL's own preprocessing: the tokens that it trains are those of the local engine."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from nemo_rl_source import REASON

pytest.importorskip("nemo_rl.algorithms", reason=REASON)

from company_play import ROOT, load, place
from nemo_rl.algorithms.sft import MasterConfig
from nemo_rl.algorithms.utils import get_tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from environments.chat_format import ChatFormat
from environments.chat_rows import save_rows
from environments.trajectory import Trajectory
from training.config import Config
from training.engines.nemo_rl.sft import masked_log, stock_data_set
from training.engines.nemo_rl.sft_config import nemo_rl_sft_config
from training.engines.nemo_rl.sft_masks import MaskMismatch, ReadBack, read_back
from training.experts import demonstrations
from training.seeds import seed_text
from training.sft.files import TrainFile, chat_row, write_train_file
from training.sft.general import OwnAnswer
from training.sft.samples import Sample, count_kinds
from training.tokenizer import train_tokenizer

STEPS, BATCH = 3, 4


@pytest.fixture(scope="module", params=["bytes", "small model"])
def tokenizer_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without merges every border between texts is one between tokens; with them it need not be."""
    if request.param == "small model":
        return ROOT / "examples/models/futari-1m"
    folder = tmp_path_factory.mktemp("bytes")
    train_tokenizer(["x"], 300, 4096).save_pretrained(folder)
    return folder


def config(folder: Path, runs: Path) -> Config:
    return load(
        "engine.name=nemo_rl", "engine.device=auto", "sft.recipe=dual_prompt", f"logger.log_dir={runs}",
        f"policy.tokenizer.name={folder}", f"sft.max_num_steps={STEPS}", f"sft.trajectories_per_step={BATCH}",
        "policy.max_total_sequence_length=4096", "policy.dynamic_batching.enabled=false", "tools.describe=full",
    )  # fmt: skip


def samples(chat: ChatFormat) -> list[Sample]:
    """Both sets; one turn of each episode thinks aloud, one text begins and ends with what may merge with its glue."""
    firm = place()
    hops = {1: 0.5, 2: 0.5}
    episode = firm.episode(load("tools.describe=full"))
    stream = demonstrations(
        firm.company, episode, chat, random.Random(0), proposer_share=0.5, proposer_hops=hops, solver_hops=hops,
        seed_text=seed_text, variants=4,
    )  # fmt: skip
    answers = []
    for number, (asked, said) in enumerate(
        [("\n why? ", "\n\nBecause <b>so</b>.\n"), ("なぜ？", "だからです。"), ("a", "b")]
    ):
        prompt, turn = chat.prompt_ids([{"role": "user", "content": asked}]), chat.turn_ids(said)
        own = OwnAnswer(prompt=asked, language="en", answer=said, token_ids=(*prompt, *turn), prompt_tokens=len(prompt))
        answers.append(own.sample(number))
    return [*answers, *(Sample(trajectory, "agentic", "en") for trajectory in islice(stream, 10))]


@pytest.fixture(scope="module")
def written(tokenizer_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainFile, dict[str, Any]]:
    chat = ChatFormat(AutoTokenizer.from_pretrained(tokenizer_folder))
    settings = config(tokenizer_folder, tmp_path_factory.mktemp("runs"))
    tree = nemo_rl_sft_config(settings)
    mixed = samples(chat)
    save_rows(Path(tree["data"]["validation"]["data_path"]), map(chat_row, mixed[:2]))
    return write_train_file(mixed, settings, chat, Path(tree["data"]["train"]["data_path"])), tree


def there(tree: dict[str, Any]) -> tuple[PreTrainedTokenizerBase, Any]:
    tokenizer: Any = get_tokenizer(MasterConfig(**tree).policy["tokenizer"])
    return tokenizer, stock_data_set(tree, "train", tokenizer)


def pairs(data_set: Any, trajectories: list[Trajectory]) -> Any:
    return ((masked_log(data_set[k]), trajectory) for k, trajectory in enumerate(trajectories))


def test_the_trained_tokens_are_equal_on_both_engines(written: tuple[TrainFile, dict[str, Any]]) -> None:
    files, tree = written
    tokenizer, data_set = there(tree)
    assert len(data_set) == STEPS * BATCH == len(files.samples)
    assert all(data_set[k]["loss_multiplier"] == 1.0 for k in range(len(data_set)))
    found = read_back(pairs(data_set, [sample.trajectory for sample in files.samples]), tokenizer.decode)
    counts = count_kinds(files.samples, ChatFormat(tokenizer))
    trained = sum(trained for kinds in counts.values() for trained, _ in kinds.values())
    masked = sum(masked for kinds in counts.values() for _, masked in kinds.values())
    assert found == ReadBack(len(files.samples), trained, masked, found.masked_there)
    print(found)


def test_without_merges_all_tokens_are_equal(written: tuple[TrainFile, dict[str, Any]]) -> None:
    files, tree = written
    tokenizer, data_set = there(tree)
    if len(tokenizer) > 320:
        pytest.skip("this tokenizer merges a text with the glue beside it, which rollouts do not")
    for k, sample in enumerate(files.samples):
        log = masked_log(data_set[k])
        assert [int(t) for m in log for t in m["token_ids"]] == list(sample.trajectory.token_ids)
        assert [int(t) for m in log for t in m["token_loss_mask"]] == list(sample.trajectory.loss_mask)


def test_a_template_that_ends_turns_with_a_line_break_is_noticed(written: tuple[TrainFile, dict[str, Any]]) -> None:
    files, tree = written
    stock = tree | {
        "policy": tree["policy"] | {"tokenizer": tree["policy"]["tokenizer"] | {"chat_template": "default"}}
    }
    tokenizer, data_set = there(stock)
    with pytest.raises(MaskMismatch, match="NeMo-RL trains"):
        read_back(pairs(data_set, [sample.trajectory for sample in files.samples]), tokenizer.decode)
