"""The one schema of a run. NeMo-RL's section and key names wherever the meaning is the same; ours are engine, corpus,
tools, selfplay, rewards, sft and evaluation. ``training.config_load`` reads it from YAML.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from corpus_index.cleaning import CleaningOptions
from corpus_index.scope import MailScope
from environments.episode import EpisodeSettings
from environments.tools import ToolSettings
from rewards.answers import MatchSettings
from rewards.llm_judge import JudgeSettings
from rewards.proposer_pay import ProposerReward
from rewards.reading import ReaderSettings
from rewards.solver import SolverReward
from training.config_base import (
    GroupSize,
    HopShares,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    Section,
    refuse,
)
from training.config_curriculum import PhaseConfig
from training.config_data import DataConfig
from training.config_loss import LossConfig as LossConfig
from training.config_nemo_rl import AsyncGrpoConfig, NemoRlConfig
from training.config_policy import PolicyConfig as PolicyConfig
from training.config_sft import SftConfig as SftConfig
from training.config_stability import TripwireConfig


class AdvEstimatorConfig(Section):
    name: Literal["grpo"] = "grpo"


class GrpoConfig(Section):
    num_prompts_per_step: PositiveInt = 16
    """Groups a step: questions in fixed mode, Proposer prompts in self-play."""
    num_generations_per_prompt: GroupSize = 8
    max_rollout_turns: PositiveInt = 8
    """Equal to ``env.limits.max_turns``: the prompt tells the model the number that ends an episode."""
    max_num_steps: NonNegativeInt = 100
    normalize_rewards: bool = False
    """Divide advantages by the group's spread, ``normalize_by``. Off is Dr.GRPO (2503.20783)."""
    normalize_by: Literal["std", "mean"] = "std"
    """Ours. std: GRPO. mean: the group's mean reward, MaxRL (2602.02710): the rarest success pulls hardest, so that no
    sort of question dies out beside easier ones. Needs rewards from 0 up."""
    use_leave_one_out_baseline: bool = False
    adv_estimator: AdvEstimatorConfig = AdvEstimatorConfig()
    advantage_clip_low: float | None = None
    advantage_clip_high: float | None = None
    val_period: NonNegativeInt = 10
    """Validate every so many steps; 0: never between the start and the end."""
    val_at_start: bool = True
    val_at_end: bool = True
    max_val_samples: PositiveInt = 256
    seed: int = 42
    overlong_filtering: bool = False
    """Mask episodes that were cut because the context was full."""
    seq_logprob_error_threshold: Annotated[float, Field(gt=1)] | None = None
    """Drop a trajectory whose mean exp|recomputed - recorded log-prob| is above this; 1 is a perfect match."""
    async_grpo: AsyncGrpoConfig = AsyncGrpoConfig()

    @model_validator(mode="after")
    def _clip_order(self) -> GrpoConfig:
        low, high = self.advantage_clip_low, self.advantage_clip_high
        refuse(
            {
                f"advantage_clip_low {low} must be at most 0: above it, bad rollouts would be rewarded": (
                    low is not None and low > 0
                ),
                f"advantage_clip_high {high} must be at least 0: below it, good rollouts would be punished": (
                    high is not None and high < 0
                ),
            }
        )
        return self


class EnvConfig(EpisodeSettings):
    on_faults: Literal["stop", "continue"] = "stop"
    """What becomes of a step in which too many rollouts ended because the index was away, or found no judge. stop: the
    run ends with a checkpoint of the last whole step, and the same command goes on from there. continue: no update in
    this step."""
    max_fault_share: Annotated[float, Field(ge=0, le=1)] = 0.5
    """More than this share of a step's rollouts, or of its answers unjudged, is too many; fewer are left out of the
    update and counted."""


class WandbConfig(Section):
    project: str = "futari"
    name: str | None = None
    """null: ``logger.run_name``."""
    entity: str | None = None


class LoggerConfig(Section):
    log_dir: str = "runs"
    """The run folder is ``log_dir/run_name``."""
    run_name: str = "selfplay"
    wandb_enabled: bool = True
    """Offline unless an API key is set."""
    wandb: WandbConfig = WandbConfig()
    samples_per_role: NonNegativeInt = 32
    """Full trajectories kept a step and role."""


class CheckpointingConfig(Section):
    enabled: bool = True
    checkpoint_dir: str | None = None
    """null: ``checkpoints`` in the run folder."""
    metric_name: str | None = "val:accuracy"
    """Ranks checkpoints; ``val:`` or ``train:`` first. null: the latest are kept."""
    higher_is_better: bool = True
    keep_top_k: PositiveInt | None = 3
    save_period: PositiveInt = 10
    validation_policy: Literal["ignore", "warn", "stop", "restart_from_best"] = "warn"
    """What a run that is started again does about a last validation well below the best one, or below that of step 0
    (``training.validation_policy``). restart_from_best: go on with the best checkpoint's weights and optimizer, and
    with the questions gathered since."""
    max_validation_drop: NonNegativeFloat = 0.1
    """In units of ``metric_name``: further below the best one is well below."""

    @field_validator("metric_name")
    @classmethod
    def _prefixed(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("val:", "train:")):
            raise ValueError(f"got {value!r}: write val:{value} or train:{value}, or null to keep the latest")
        return value


class ClusterConfig(Section):
    """Read by the nemo_rl engine."""

    gpus_per_node: PositiveInt = 1
    num_nodes: PositiveInt = 1


class EngineConfig(Section):
    name: Literal["local", "nemo_rl"] = "local"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    num_threads: PositiveInt | None = None
    """Threads of torch; null: torch's own choice."""
    rollout_batch_size: PositiveInt = 64
    """Episodes generated side by side; a waiting one is admitted when one ends."""
    sync_every: PositiveInt = 1
    """Ours. Training rollouts come from weights that follow the trained ones every so many steps, as those of an
    inference server that runs ahead; 1: the trained weights themselves, at no cost."""


class CorpusConfig(Section):
    source: str = "company:seed=0"
    """What is read: ``kind:where``, for example ``maildir:PATH`` or ``company:seed=7,projects=80``."""
    index: str | None = None
    """Where the index lives, for example ``embedded:PATH``; built from ``source`` when absent. null: in the run folder,
    so that another source never meets an old index."""
    cleaning: CleaningOptions = CleaningOptions.model_validate({})


class RoleWeights(Section):
    """Weight of each role's mean loss; the two are divided by their own token counts first."""

    proposer: NonNegativeFloat = 1.0
    solver: NonNegativeFloat = 1.0


class SelfPlayConfig(Section):
    mode: Literal["selfplay", "fixed"] = "selfplay"
    """fixed: GRPO of the Solver alone on known questions: those of ``data.train.data_path``, or a company's facts."""
    proposer_prompts_per_step: PositiveInt = 16
    proposer_generations: GroupSize = 8
    solver_generations: GroupSize = 8
    max_solver_groups: PositiveInt = 16
    """Valid questions beyond this are left out, and counted."""
    spread_questions: bool = True
    """Leave out those of a pattern that is already chosen before others (``training.spread``); false: at random."""
    pool_share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of ``max_solver_groups`` that answers questions of earlier steps, of patterns that this step's lack."""
    hops: HopShares = Field(default={1: 0.5, 2: 0.5})
    """Hops that Proposer prompts (or fixed questions) ask for."""
    curriculum: Annotated[tuple[PhaseConfig, ...], Field(strict=False)] = ()
    """Phases with hops and strictness of their own, in place of ``hops``; empty: none."""
    seeds: Literal["mail", "subject", "person", "thread", "window"] = "mail"
    """What a Proposer group starts exploring from (``training.seeds``); window: a week."""
    cover: bool = False
    """Seeds go through the whole corpus before any comes again; false: drawn anew in each step."""
    hint_generations: NonNegativeInt = 0
    """Rollouts of each new question by Solvers that are told the evidence ids, never trained on: how much of its
    difficulty is in the search. Shape regret needs them."""
    tool_variants: PositiveInt = 4
    """Wordings of the tool descriptions to draw from, one a group."""
    role_weights: RoleWeights = RoleWeights()
    max_token_share: Annotated[float, Field(gt=0.5, lt=1)] | None = None
    """Drop whole groups of the heavier role, drawn at random, until it has at most this share of the tokens that are
    trained; null: keep all. Usual: 0.6."""
    max_age: NonNegativeInt | None = None
    """Drop rollouts whose weights are more updates old than this; null: keep all."""
    refill_rounds: NonNegativeInt = 0
    """While fewer than ``max_solver_groups`` Solver groups have rewards that differ, roll out further valid questions
    of this step, then of the pool, at most so many times. Dynamic sampling (DAPO, 2503.14476), of the Solver alone: a
    Proposer's failures are its contrast."""


class RewardsConfig(Section):
    solver: SolverReward = SolverReward()
    proposer: ProposerReward = ProposerReward()
    reader: ReaderSettings = ReaderSettings()
    """Checks of a valid question by reading, without search, before Solvers get it (``rewards.reading``)."""
    answers: MatchSettings = MatchSettings()
    """How an answer is compared with its key."""
    judge: JudgeSettings = JudgeSettings()
    """Who decides where training pays. Benchmarks and validation are measured by the rules alone."""

    @model_validator(mode="after")
    def _unknown_is_not_wrong(self) -> RewardsConfig:
        refuse(
            {
                "judge.kind endpoint with solver.unsure wrong: what the judge cannot tell would be paid as wrong; set "
                "rewards.solver.unsure to masked": self.judge.kind == "endpoint" and self.solver.unsure == "wrong"
            }
        )
        return self


class EvaluationConfig(Section):
    """The benchmark. Validation during training draws on ``validation_source`` and never on the benchmark's corpus."""

    source: str = "company:seed=7,split=test"
    validation_source: str = "company:seed=7,split=validation"
    benchmark_path: str | None = None
    """Questions as JSONL; null: drawn from the facts of the company in ``source``."""
    questions: NonNegativeInt = 400
    """0: no benchmark."""
    hops: HopShares = Field(default={1: 0.4, 2: 0.4, 3: 0.2})
    seed: int = 7
    """Draws the questions and the bootstrap."""
    greedy: bool = True
    bootstrap_samples: PositiveInt = 1000

    @model_validator(mode="after")
    def _apart(self) -> EvaluationConfig:
        refuse(
            {
                f"validation_source and source are both {self.source}: choosing a checkpoint on the benchmark's corpus "
                "is tuning on the benchmark": self.source == self.validation_source
            }
        )
        return self


class Config(Section):
    grpo: GrpoConfig = GrpoConfig()
    loss_fn: LossConfig = LossConfig()
    policy: PolicyConfig = PolicyConfig()
    env: EnvConfig = EnvConfig()
    tools: ToolSettings = ToolSettings()
    logger: LoggerConfig = LoggerConfig()
    checkpointing: CheckpointingConfig = CheckpointingConfig()
    cluster: ClusterConfig = ClusterConfig()
    engine: EngineConfig = EngineConfig()
    nemo_rl: NemoRlConfig = NemoRlConfig()
    """Read by ``engine.name: nemo_rl``."""
    corpus: CorpusConfig = CorpusConfig()
    data: DataConfig = DataConfig()
    scope: MailScope = MailScope()
    """The mails of ``corpus`` that exist for the agent: tools, seeds and checks see no other. The companies of
    ``evaluation`` are corpora of their own."""
    selfplay: SelfPlayConfig = SelfPlayConfig()
    tripwire: TripwireConfig = TripwireConfig()
    rewards: RewardsConfig = RewardsConfig()
    sft: SftConfig = SftConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="after")
    def _sections_agree(self) -> Config:
        never_validates = self.grpo.val_period == 0 and not self.grpo.val_at_end
        metric = self.checkpointing.metric_name
        weights, solver = self.selfplay.role_weights, self.rewards.solver
        refused = self.rewards.proposer.refused
        by_mean = self.grpo.normalize_rewards and self.grpo.normalize_by == "mean"
        refuse(
            {
                f"grpo.normalize_by mean divides by a mean reward, and rewards.solver has wrong {solver.wrong} and "
                f"none {solver.none}: pay nothing below 0, or set normalize_by to std": (
                    by_mean and min(solver.wrong, solver.none) < 0
                ),
                f"grpo.normalize_by mean divides by a mean reward, and rewards.proposer.refused is {refused}: pay "
                "nothing below 0, or set normalize_by to std": by_mean and (refused or 0.0) < 0,
                "env.outputs apart is described by no prompt: set tools.describe to none": (
                    self.env.outputs == "apart" and self.tools.describe != "none"
                ),
                f"checkpointing.metric_name {metric} needs a validation: set grpo.val_period above 0 or "
                "grpo.val_at_end to true, or metric_name to null": (
                    self.checkpointing.enabled and metric is not None and metric.startswith("val:") and never_validates
                ),
                f"data.train.data_path is {self.data.train.data_path} and selfplay.mode selfplay asks its own questions"
                ": set selfplay.mode to fixed, or data_path to null": (
                    self.data.train.data_path is not None and self.selfplay.mode == "selfplay"
                ),
                f"grpo.max_rollout_turns {self.grpo.max_rollout_turns} and env.limits.max_turns "
                f"{self.env.limits.max_turns} are one number: env.limits.max_turns: ${{grpo.max_rollout_turns}}": (
                    self.grpo.max_rollout_turns != self.env.limits.max_turns
                ),
                f"loss_fn.force_on_policy_ratio with policy.train_global_batch_size "
                f"{self.policy.train_global_batch_size}: from the second optimiser step of a batch the ratio is not 1; "
                "set train_global_batch_size to null": (
                    self.loss_fn.force_on_policy_ratio and self.policy.train_global_batch_size is not None
                ),
                "rewards.proposer.shape regret compares with hinted Solvers: set selfplay.hint_generations above 0": (
                    self.rewards.proposer.shape == "regret" and not self.selfplay.hint_generations
                ),
                "selfplay.curriculum: every phase but the last needs an `until`, or the run never leaves it": any(
                    phase.until is None for phase in self.selfplay.curriculum[:-1]
                ),
                "selfplay.refill_rounds with selfplay.mode fixed: fixed questions are drawn as many as wanted; raise "
                "grpo.num_prompts_per_step instead": self.selfplay.refill_rounds > 0 and self.selfplay.mode == "fixed",
                "selfplay.role_weights are both 0: nothing would be trained": weights.proposer == weights.solver == 0,
                "grpo.async_grpo.enabled with engine.name local: rollouts and training take turns in one process; set "
                "engine.sync_every above 1 to see what older weights do": (
                    self.grpo.async_grpo.enabled and self.engine.name == "local"
                ),
                "engine.device cpu with engine.name nemo_rl: the cluster engine needs GPUs": (
                    self.engine.name == "nemo_rl" and self.engine.device == "cpu"
                ),
            }
        )
        return self
