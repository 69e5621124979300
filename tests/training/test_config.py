from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from pydantic import BaseModel

from corpus_index.scope import MailScope
from environments.tools import ToolSettings
from training.config import Config, EvaluationConfig, LossConfig
from training.config_load import ConfigError, dump_config, load_config, validate_config
from training.runlog import RunLog

BASE = Path(__file__).resolve().parents[2] / "examples" / "configs" / "base.yaml"

Recipe = Callable[..., Path]


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    def write(text: str, name: str = "recipe.yaml") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


def leaves(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from leaves(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def test_base_recipe_holds_every_key_and_every_default() -> None:
    written = OmegaConf.load(BASE)
    missing = object()
    absent = [key for key in leaves(Config) if OmegaConf.select(written, key, default=missing) is missing]
    assert not absent
    assert load_config(BASE) == Config()


def test_every_recipe_loads() -> None:
    recipes = sorted(BASE.parent.glob("*.yaml"))
    assert BASE in recipes
    for path in recipes:
        load_config(path)


def test_base_links_keys_that_go_together() -> None:
    config = load_config(BASE, ["grpo.num_generations_per_prompt=5", "grpo.max_rollout_turns=3", "grpo.seed=9"])
    assert config.selfplay.proposer_generations == config.selfplay.solver_generations == 5
    assert config.env.limits.max_turns == 3
    assert config.sft.seed == 9


def test_defaults_are_inherited_depth_first_and_the_child_wins(recipe: Recipe) -> None:
    recipe("grpo: {seed: 1, max_num_steps: 1}\npolicy: {model_name: grandparent}", "shared/grand.yaml")
    recipe("defaults: grand.yaml\ngrpo: {seed: 2, val_period: 2}", "shared/parent.yaml")
    recipe("grpo: {val_period: 3, max_val_samples: 3}", "other.yaml")
    child = recipe("defaults: [shared/parent.yaml, other.yaml]\ngrpo: {max_val_samples: 4}")
    config = load_config(child)
    assert config.policy.model_name == "grandparent"
    assert (config.grpo.seed, config.grpo.max_num_steps) == (2, 1)
    assert config.grpo.val_period == 3  # the later parent
    assert config.grpo.max_val_samples == 4


def test_a_mapping_that_is_a_value_is_replaced_not_merged(recipe: Recipe) -> None:
    recipe("selfplay: {hops: {1: 0.2, 3: 0.8}}\ntools: {enabled: [read_mail]}", "parent.yaml")
    config = load_config(recipe("defaults: parent.yaml\nselfplay: {hops: {2: 1.0}}\n"))
    assert config.selfplay.hops == {2: 1.0}
    assert config.tools == ToolSettings(enabled=("read_mail",))


def test_a_circle_of_defaults_is_shown(recipe: Recipe) -> None:
    recipe("defaults: b.yaml", "a.yaml")
    recipe("defaults: c.yaml", "b.yaml")
    recipe("defaults: b.yaml", "c.yaml")
    with pytest.raises(ConfigError, match=r"circle: \S*b\.yaml -> \S*c\.yaml -> \S*b\.yaml; remove"):
        load_config(recipe("defaults: a.yaml"))


def test_two_parents_may_share_a_grandparent(recipe: Recipe) -> None:
    recipe("grpo: {seed: 5}", "grand.yaml")
    recipe("defaults: grand.yaml", "a.yaml")
    recipe("defaults: grand.yaml\ngrpo: {seed: 6}", "b.yaml")
    assert load_config(recipe("defaults: [a.yaml, b.yaml]")).grpo.seed == 6


@pytest.mark.parametrize(
    ("override", "read", "value"),
    [
        ("grpo.seed=7", lambda c: c.grpo.seed, 7),
        ("++policy.optimizer.kwargs.lr=3e-4", lambda c: c.policy.optimizer.kwargs.lr, 3e-4),
        ("+policy.optimizer.kwargs.betas=[0.8, 0.95]", lambda c: c.policy.optimizer.kwargs.betas, (0.8, 0.95)),
        ("logger.run_name=a=b", lambda c: c.logger.run_name, "a=b"),
        ("corpus.source=company:seed=3,projects=9", lambda c: c.corpus.source, "company:seed=3,projects=9"),
        ("policy.max_grad_norm=null", lambda c: c.policy.max_grad_norm, None),
        ("selfplay.hops={2: 1.0}", lambda c: c.selfplay.hops, {2: 1.0}),
        ("sft.seed=${grpo.max_num_steps}", lambda c: c.sft.seed, 100),
        ("tools.enabled=[read_mail]", lambda c: c.tools.enabled, ("read_mail",)),
        (
            "policy.hf_config_overrides.num_hidden_layers=2",
            lambda c: c.policy.hf_config_overrides["num_hidden_layers"],
            2,
        ),
    ],
)
def test_overrides(override: str, read: Callable[[Config], Any], value: object) -> None:
    assert read(load_config(BASE, [override])) == value


def test_overrides_come_in_order_and_reach_into_mappings() -> None:
    config = load_config(BASE, ["selfplay.hops={1: 0.5, 3: 0.5}", "selfplay.hops.3=0.2", "selfplay.hops.2=0.3"])
    assert config.selfplay.hops == {1: 0.5, 2: 0.3, 3: 0.2}
    assert load_config(BASE, ["grpo.seed=1", "grpo.seed=2"]).grpo.seed == 2


def test_environment_interpolation(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    path = recipe("logger: {log_dir: '${oc.env:FUTARI_TEST_RUNS,fallback}', run_name: 'r${grpo.seed}'}")
    assert load_config(path).logger.log_dir == "fallback"
    monkeypatch.setenv("FUTARI_TEST_RUNS", "/elsewhere")
    config = load_config(path)
    assert (config.logger.log_dir, config.logger.run_name) == ("/elsewhere", "r42")
    with pytest.raises(ConfigError, match=r"logger\.log_dir: .*FUTARI_TEST_NOT_SET"):
        load_config(path, ["logger.log_dir=${oc.env:FUTARI_TEST_NOT_SET}"])


@pytest.mark.parametrize(
    ("unknown", "nearest"),
    [
        ("grpo.num_prompt_per_step", "grpo.num_prompts_per_step"),
        ("loss_fn.kl_penalty", "loss_fn.reference_policy_kl_penalty"),
        ("grop", "grpo"),
        ("policy.optimizer.lr", "policy.optimizer.kwargs.lr"),
        ("engine.threads", "engine.num_threads"),
        ("loss_fn.seed", "grpo.seed"),  # known, but in another section
        ("tools.maximum_hits", "tools.max_hits"),  # the sections of the lower floors are strict too
        ("rewards.proposer.checks.bridges", "rewards.proposer.checks.bridge"),
        ("env.limits.max_turn", "env.limits.max_turns"),
        ("corpus.cleaning.exact_duplicate", "corpus.cleaning.exact_duplicates"),
    ],
)
def test_an_unknown_key_names_itself_and_the_nearest(unknown: str, nearest: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load_config(BASE, [f"++{unknown}=1"])
    assert str(refusal.value) == f"{BASE}: unknown key {unknown}; nearest: {nearest}"


def test_all_unknown_keys_are_named_at_once(recipe: Recipe) -> None:
    with pytest.raises(ConfigError) as refusal:
        load_config(recipe("grpo: {sed: 1}\npolicy: {generation: {topp: 1}}\n"))
    assert [line.split("; ")[0].split(": ")[-1] for line in str(refusal.value).splitlines()] == [
        "unknown key grpo.sed",
        "unknown key policy.generation.topp",
    ]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("grpo.seed=soon", "grpo.seed: got 'soon' (str), expected a valid integer"),
        ("grpo.seed='16'", "grpo.seed: got '16' (str), expected a valid integer"),
        ("grpo.seed=true", "grpo.seed: got True (bool), expected a valid integer"),
        ("grpo.val_at_end=1", "grpo.val_at_end: got 1 (int), expected a valid boolean"),
        ("grpo.num_prompts_per_step=0", "grpo.num_prompts_per_step: got 0 (int), expected greater than 0"),
        ("policy.precision=fp16", "policy.precision: got 'fp16' (str), expected 'float32' or 'bfloat16'"),
        ("grpo.num_generations_per_prompt=1", "got 1 (int), expected greater than or equal to 2"),
        ("tools.max_hits=many", "tools.max_hits: got 'many' (str), expected a valid integer"),
        ("cluster=3", "cluster: got 3 (int), expected a valid dictionary or instance of ClusterConfig"),
        ("selfplay.hops=[1, 2]", "selfplay.hops: got [1, 2] (list), expected a valid dictionary"),
    ],
)
def test_a_wrong_type_names_key_value_and_expectation(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load_config(BASE, [override])
    assert message in str(refusal.value)


ICEPOP = {
    "use_importance_sampling_correction": True,
    "truncated_importance_sampling_type": "icepop",
    "truncated_importance_sampling_ratio": 5.0,
}


@pytest.mark.parametrize(
    ("tree", "reason"),
    [
        ({"policy": {"generation": {"top_p": 0.9}}}, "top_p 0.9: the sampler would draw from another distribution"),
        ({"policy": {"generation": {"top_k": 50}}}, "top_k 50: the sampler"),
        ({"policy": {"generation": {"min_p": 0.1}}}, "min_p 0.1: the sampler"),
        (
            {"policy": {"generation": {"repetition_penalty": 1.1, "top_p": 0.9, "allow_filters": True}}},
            "repetition_penalty 1.1: the sampler",
        ),
        ({"policy": {"generation": {"top_p": 0.0, "allow_filters": True}}}, "top_p 0.0: it is a share"),
        ({"policy": {"generation": {"top_k": 0, "allow_filters": True}}}, "top_k 0: it is a number of tokens"),
        ({"policy": {"generation": {"min_p": 1.0, "allow_filters": True}}}, "min_p 1.0: it is a share"),
        ({"policy": {"generation": {"repetition_penalty": 1.1}}}, "repetition_penalty 1.1: the sampler"),
        ({"policy": {"generation": {"presence_penalty": 0.5}}}, "presence_penalty 0.5: the sampler"),
        ({"policy": {"generation": {"frequency_penalty": 0.5}}}, "frequency_penalty 0.5: the sampler"),
        ({"policy": {"generation": {"stop_strings": ["</answer>"]}}}, "the protocol ends turns"),
        ({"policy": {"generation": {"temperature": 0.0}}}, "greedy rollouts make a group of equal members"),
        ({"policy": {"generation": {"max_new_tokens": 4096}}}, "one turn must fit in the context"),
        ({"policy": {"max_total_sequence_length": 20000}}, "a full-length trajectory fits no micro-batch"),
        ({"loss_fn": {"sequence_level_importance_ratios": True}}, "set token_level_loss to false"),
        (
            {
                "loss_fn": {
                    "sequence_level_importance_ratios": True,
                    "token_level_loss": False,
                    "use_importance_sampling_correction": True,
                }
            },
            "SUM of its tokens' log-ratios",
        ),
        ({"loss_fn": {"truncated_importance_sampling_type": "tis"}}, "truncates weights that are off"),
        ({"loss_fn": {"truncated_importance_sampling_ratio": 2.0}}, "do nothing without"),
        ({"loss_fn": ICEPOP}, "icepop needs truncated_importance_sampling_ratio_min"),
        (
            {"loss_fn": {**ICEPOP, "truncated_importance_sampling_type": "seq-mask-tis"}},
            "seq-mask-tis needs truncated_importance_sampling_ratio_min",
        ),
        (
            {
                "loss_fn": {
                    **ICEPOP,
                    "truncated_importance_sampling_type": "seq-mask-tis",
                    "truncated_importance_sampling_ratio_min": 0.9,
                    "sequence_level_importance_ratios": True,
                    "token_level_loss": False,
                }
            },
            "SUM of its tokens' log-ratios",
        ),
        (
            {"loss_fn": {**ICEPOP, "truncated_importance_sampling_ratio_min": 5.0}},
            "ratio_min 5.0 is not below truncated_importance_sampling_ratio 5.0",
        ),
        (
            {
                "loss_fn": {
                    **ICEPOP,
                    "truncated_importance_sampling_type": "tis",
                    "truncated_importance_sampling_ratio_min": 0.5,
                }
            },
            "tis has no lower bound",
        ),
        (
            {"loss_fn": {**ICEPOP, "truncated_importance_sampling_ratio": None}},
            "icepop needs truncated_importance_sampling_ratio (usual",
        ),
        ({"loss_fn": {"use_cispo": True, "use_sapo": True}}, "use_cispo and use_sapo are different losses"),
        ({"loss_fn": {"use_cispo": True, "ratio_clip_c": 3.0}}, "set ratio_clip_c to null"),
        ({"loss_fn": {"use_cispo": True, "token_level_loss": False}}, "use_cispo is defined over all tokens"),
        (
            {
                "loss_fn": {
                    "use_sapo": True,
                    "sequence_level_importance_ratios": True,
                    "token_level_loss": False,
                }
            },
            "use_sapo and sequence_level_importance_ratios are different losses",
        ),
        ({"loss_fn": {"constant_length": 9, "token_level_loss": False}}, "constant_length replaces the length"),
        ({"loss_fn": {"disable_ppo_ratio": True, "force_on_policy_ratio": True}}, "two ways to drop the ratio"),
        (
            {"loss_fn": {"force_on_policy_ratio": True}, "policy": {"train_global_batch_size": 8}},
            "from the second optimiser step of a batch the ratio is not 1",
        ),
        ({"grpo": {"advantage_clip_low": 0.5}}, "bad rollouts would be rewarded"),
        ({"grpo": {"advantage_clip_high": -0.5}}, "good rollouts would be punished"),
        ({"grpo": {"max_rollout_turns": 3}}, "are one number: env.limits.max_turns: ${grpo.max_rollout_turns}"),
        ({"grpo": {"val_period": 0, "val_at_end": False}}, "metric_name val:accuracy needs a validation"),
        ({"checkpointing": {"metric_name": "accuracy"}}, "write val:accuracy or train:accuracy"),
        ({"selfplay": {"hops": {1: 0.5, 2: 0.6}}}, "the shares sum to 1.1, they must sum to 1"),
        ({"selfplay": {"hops": {0: 1.0}}}, "hop counts start at 1"),
        ({"selfplay": {"role_weights": {"proposer": 0.0, "solver": 0.0}}}, "nothing would be trained"),
        ({"sft": {"relation_weights": {"fax": 2.0}}}, "fax: no such relation; use owner, room"),
        (
            {"grpo": {"normalize_rewards": True, "normalize_by": "mean"}, "rewards": {"solver": {"wrong": -1.0}}},
            "grpo.normalize_by mean divides by a mean reward",
        ),
        ({"engine": {"name": "nemo_rl", "device": "cpu"}}, "the cluster engine needs GPUs"),
        (
            {"evaluation": {"validation_source": EvaluationConfig().source}},
            "is tuning on the benchmark",
        ),
    ],
)
def test_forbidden_combinations_say_why(tree: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        validate_config(tree)
    assert reason in str(refusal.value)


@pytest.mark.parametrize(
    "loss",
    [
        {"sequence_level_importance_ratios": True, "token_level_loss": False, "ratio_clip_c": 3.0},
        {"use_cispo": True, "use_importance_sampling_correction": True},
        {"use_sapo": True, "token_level_loss": False},
        {**ICEPOP, "truncated_importance_sampling_ratio_min": 0.5},
        {"ratio_clip_c": 3.0, "constant_length": 512},
        {"disable_ppo_ratio": True},
    ],
)
def test_meaningful_combinations_are_accepted(loss: dict[str, Any]) -> None:
    assert validate_config({"loss_fn": loss}).loss_fn == LossConfig(**loss)


def test_harmless_spellings_of_no_filter_are_accepted() -> None:
    assert validate_config({"policy": {"generation": {"top_k": -1, "stop_strings": []}}}).policy.generation.top_k == -1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- 1\n- 2\n", "expected a mapping of sections, got a list"),
        ("grpo: {seed: 1\n", "not readable as YAML"),
        ("grpo: {seed: 1}\ngrpo: {seed: 2}\n", "not readable as YAML: .*duplicate key grpo"),
        ("defaults: nowhere.yaml\n", r"nowhere\.yaml: no such recipe \(named in defaults of .*recipe\.yaml\)"),
        ("defaults: {a: 1}\n", "defaults: got {'a': 1}, expected a file name or a list"),
        ("sft: {seed: '${grpo.sed}'}\n", r"sft\.seed: Interpolation key 'grpo\.sed' not found"),
        ("sft:\n  seed: ???\n", r"sft\.seed: .*[Mm]issing"),
    ],
)
def test_broken_recipes(recipe: Recipe, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(recipe(text))


@pytest.mark.parametrize("override", ["grpo.seed", "=3", "grpo..seed=3", "grpo.seed=[1"])
def test_broken_overrides_are_quoted(override: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load_config(BASE, [override])
    assert repr(override) in str(refusal.value)


def test_missing_and_undecodable_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.yaml: no such recipe"):
        load_config(tmp_path / "gone.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"logger: {run_name: caf\xe9}")
    with pytest.raises(ConfigError, match=r"latin\.yaml: not readable"):
        load_config(tmp_path / "latin.yaml")


def test_a_dump_reads_back_equal_and_resolved(tmp_path: Path) -> None:
    config = load_config(BASE, ["selfplay.hops={2: 1.0}", "policy.optimizer.kwargs.lr=3e-7", "logger.run_name=日本"])
    target = tmp_path / "new" / "config.yaml"
    dump_config(config, target)
    assert load_config(target) == config
    text = target.read_text(encoding="utf-8")
    assert "${" not in text
    assert "日本" in text


def test_a_scope_is_read_and_written_with_its_dates(recipe: Recipe, tmp_path: Path) -> None:
    path = recipe("scope: {mailboxes: [kaminski-v], after: 2001-05-14, before: '2001-06-01T12:00:00+02:00'}")
    config = load_config(path)
    assert config.scope == MailScope(
        mailboxes=("kaminski-v",), after=datetime(2001, 5, 14, tzinfo=UTC), before=datetime(2001, 6, 1, 10, tzinfo=UTC)
    )
    dump_config(config, tmp_path / "again.yaml")
    assert load_config(tmp_path / "again.yaml") == config
    with RunLog.of(load_config(path, [f"logger.log_dir={tmp_path / 'runs'}", "logger.wandb_enabled=false"])) as log:
        assert load_config(log.folder / "config.yaml").scope == config.scope
    with pytest.raises(ConfigError, match=r"unknown key scope\.mailbox; nearest: scope\.mailboxes"):
        load_config(recipe("scope: {mailbox: kaminski-v}"))
    with pytest.raises(ConfigError, match=r"scope\.after"):
        load_config(recipe("scope: {after: soon}"))


def test_what_becomes_of_faults_is_said_in_words() -> None:
    config = load_config(BASE, ["env.on_faults=continue", "env.max_fault_share=0"])
    assert (config.env.on_faults, config.env.max_fault_share) == ("continue", 0.0)
    with pytest.raises(ConfigError, match=r"env\.on_faults: got 'ignore' .*'stop' or 'continue'"):
        load_config(BASE, ["env.on_faults=ignore"])
    with pytest.raises(ConfigError, match=r"env\.max_fault_share: got 50"):
        load_config(BASE, ["env.max_fault_share=50"])


def test_a_full_disk_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    target = tmp_path / "config.yaml"
    dump_config(Config(), target)
    before = target.read_bytes()
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        dump_config(load_config(BASE, ["grpo.seed=1"]), target)
    assert target.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Config().grpo.seed = 3
    assert Config().selfplay.hops is not Config().selfplay.hops  # a mapping can be; it must not be shared


def test_seed_hops_order_and_zero_shares_do_not_matter() -> None:
    one = validate_config({"selfplay": {"hops": {2: 0.8, 1: 0.2, 3: 0.0}}})
    two = validate_config({"selfplay": {"hops": {1: 0.2, 2: 0.8}}})
    assert one == two
    assert list(one.selfplay.hops) == [1, 2]
