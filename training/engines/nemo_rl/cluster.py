"""A recipe to a running cluster: NeMo-RL's own setup, and an engine over what it gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from transformers import GenerationConfig

from corpus_index.backends.embedded import MEMORY_LOCATOR
from corpus_index.scope import MailScope
from environments.chat_format import ChatFormat
from environments.episode import Episode, EpisodeSettings
from training.config import Config
from training.config_load import plain_tree
from training.engines.models import sampling_fields
from training.engines.nemo_rl.config import nemo_rl_master_config
from training.engines.nemo_rl.engine import NemoRlEngine
from training.engines.nemo_rl.limits import refusals
from training.engines.nemo_rl.pieces import Pieces, Start


@dataclass(frozen=True)
class Cluster:
    """What ``grpo.setup`` is called with, put together from a recipe; ``chat`` ends turns."""

    config: Config
    chat: ChatFormat

    def assemble(self, start: Start) -> Pieces:
        """Start the workers: minutes. Raises what NeMo-RL raises, ConfigError for a recipe that it cannot take."""
        from nemo_rl.algorithms import grpo  # pyright: ignore[reportMissingImports, reportUnknownVariableType]
        from nemo_rl.distributed.virtual_cluster import (  # pyright: ignore[reportMissingImports]
            init_ray,  # pyright: ignore[reportUnknownVariableType]
        )
        from nemo_rl.models.generation import (  # pyright: ignore[reportMissingImports]
            configure_generation_config,  # pyright: ignore[reportUnknownVariableType]
        )
        from nemo_rl.models.policy.lm_policy import (  # pyright: ignore[reportMissingImports]
            Policy,  # pyright: ignore[reportUnknownVariableType]
        )

        library, make_policy = cast("Any", grpo), cast("Any", Policy)
        master = library.MasterConfig(**training_tree(self.config, start, self.chat.end_of_turn_ids))
        tokenizer = self.chat.tokenizer
        master.policy["generation"] = cast("Any", configure_generation_config)(
            master.policy["generation"],
            tokenizer,
            has_refit_draft_weights=bool(master.policy["draft"]["enabled"]),
            trains_mtp=bool((master.policy.get("megatron_cfg") or {}).get("mtp_num_layers")),
        )
        cast("Any", init_ray)()

        def policy_from_start(**kwargs: Any) -> Any:
            # Resuming is ours: NeMo-RL would look for the checkpoints of its own loop.
            paths = {"weights_path": start.weights, "optimizer_path": start.optimizer}
            return make_policy(**kwargs | {name: path and str(path) for name, path in paths.items()})

        made = library.setup(master, tokenizer, self._prompts(), None, policy_factory=policy_from_start)
        policy, generation, clusters, dashboard, master = (made[place] for place in (0, 1, 3, 7, 10))
        return Pieces(policy, generation, master.model_dump(), dashboard, tuple(clusters))

    def _prompts(self) -> Sequence[int]:
        """NeMo-RL counts a run's steps by a data loader: this one has their number and is never read."""
        return range(self.config.grpo.max_num_steps * self.config.grpo.num_prompts_per_step)


def training_tree(config: Config, start: Start, end_of_turn_ids: Sequence[int]) -> dict[str, Any]:
    """What NeMo-RL's ``MasterConfig`` takes for a loop of ours: validation, resuming, advantages and W&B are not its
    own, and turns end as the chat template ends them.

    Raises ValueError for what this engine cannot do, ConfigError for a recipe that does not resolve.
    """
    tree = checked(config)
    tree["grpo"] |= {"val_period": 0, "val_at_start": False, "val_at_end": False}
    # Checked against NeMo-RL's own count of prompts, which a self-play batch has not.
    tree["loss_fn"]["force_on_policy_ratio"] = False
    tree["policy"]["generation"]["stop_token_ids"] = list(end_of_turn_ids)
    # One run in W&B, that of the run log, which knows how to go on after a kill.
    tree["logger"]["wandb_enabled"] = False
    if start.model is not None:
        tree["policy"] |= {"model_name": start.model}
    return tree


def checked(config: Config) -> dict[str, Any]:
    """NeMo-RL's config of the recipe. Raises ValueError with every known reason why a run of it would break."""
    tree = nemo_rl_master_config(config)
    if reasons := refusals(config, tree):
        raise ValueError("engine.name nemo_rl: " + "; ".join(reasons))
    return tree


def env_section(config: Config, episode: Episode, scope: MailScope) -> dict[str, Any]:
    """What an actor of ``environments.nemo_rl`` needs to play as ``episode`` does.

    Raises ValueError for an index that only this process can see.
    """
    locator = episode.toolbox.index.locator
    if locator == MEMORY_LOCATOR:
        raise ValueError(
            "an index in this process's memory cannot be opened by a Ray actor: build it with open_writer at a locator "
            "that every node sees, such as embedded:PATH on a shared disk"
        )
    env = plain_tree(config)["env"]
    return {
        "index": locator,
        "tokenizer": config.policy.tokenizer.name or config.policy.model_name,
        "tools": plain_tree(config)["tools"],
        "episode": {name: env[name] for name in EpisodeSettings.model_fields},
        "scope": scope.model_dump(mode="json"),
    }


def start_actor(section: Mapping[str, Any]) -> Any:
    """A Ray actor for both roles."""
    from nemo_rl.environments.utils import (  # pyright: ignore[reportMissingImports]
        create_env,  # pyright: ignore[reportUnknownVariableType]
    )

    from environments.nemo_rl import ENV_NAMES, register

    register()
    return cast("Any", create_env)(ENV_NAMES[0], dict(section))


def make_chat(config: Config) -> ChatFormat:
    """How the recipe's tokenizer writes episodes. Raises ChatFormatError, OSError for a tokenizer that is not there."""
    from nemo_rl.algorithms.utils import (  # pyright: ignore[reportMissingImports]
        get_tokenizer,  # pyright: ignore[reportUnknownVariableType]
    )

    return ChatFormat(cast("Any", get_tokenizer)(nemo_rl_master_config(config)["policy"]["tokenizer"]))


def make_engine(config: Config, chat: ChatFormat, episode: Episode) -> NemoRlEngine:
    """The engine of ``engine.name: nemo_rl``, playing on ``episode``. Nothing starts before the first rollout.

    Raises ValueError for a recipe that NeMo-RL's pieces cannot run.
    """
    checked(config)

    def actor_for(wanted: Episode) -> Any:
        # Evaluation plays on corpora of its own, which no scope of the training corpus limits.
        return start_actor(env_section(config, wanted, config.scope if wanted is episode else MailScope()))

    return NemoRlEngine(
        config, chat, episode, assemble=Cluster(config, chat).assemble, start_actor=actor_for,
        model_file=own_sampling(config.policy.model_name),
    )  # fmt: skip


def own_sampling(model_name: str) -> dict[str, float]:
    """Empty for a model without a generation config, or one that cannot be reached from here."""
    try:
        return sampling_fields(GenerationConfig.from_pretrained(model_name))
    except OSError:
        return {}
