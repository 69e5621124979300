"""``base.Engine`` over NeMo-RL's pieces: the same self-play loop, on a cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import RLock
from typing import Any

import torch
from torch import Tensor

from environments.chat_format import ChatFormat
from environments.episode import Episode
from environments.nemo_rl_rows import RolloutLimits
from environments.task import Task
from environments.trajectory import Trajectory
from training.checkpoint import saved_state, whole_folder
from training.config import Config, LossConfig
from training.engines.base import EffectiveSampling, Sampling, Weighted
from training.engines.batching import optimiser_steps
from training.engines.nemo_rl.batch import Columns, Rows, fill_up, rows_of, token_columns, update_columns
from training.engines.nemo_rl.export import OPTIMIZER, TOKENIZER, WEIGHTS, lay_out
from training.engines.nemo_rl.metrics import update_metrics
from training.engines.nemo_rl.pieces import Assemble, Pieces, Start, batched, refit
from training.engines.nemo_rl.rollout import Roller, StartActor

_STATE = "engine_state.json"
_LOGPROB_COLUMNS = ("input_ids", "input_lengths", "token_mask", "sample_mask")


class NemoRlEngine:
    """The cluster is built at the first need of it, from the checkpoint that was loaded before, if one was: its workers
    read a checkpoint only while they start. ``episode`` may be replaced between rollouts by one over another index that
    an actor can open.

    Rollouts may run in another thread than everything else (``training.ahead``), where generation has GPUs of its own.
    """

    def __init__(
        self,
        config: Config,
        chat: ChatFormat,
        episode: Episode,
        *,
        assemble: Assemble,
        start_actor: StartActor,
        model_file: Mapping[str, float] | None = None,
    ) -> None:
        """``model_file``: the sampling fields of the model's own generation config, which no rollout follows."""
        self.episode = episode
        self._config = config
        self._assemble = assemble
        self._model_file = dict(model_file or {})
        limits = RolloutLimits(
            max_seq_len=config.policy.max_total_sequence_length, max_rollout_turns=config.grpo.max_rollout_turns
        )
        self._roller = Roller(chat, limits, start_actor)
        self._start = Start()
        self._loaded: Path | None = None
        self._built: Pieces | None = None
        self._version = 0
        self._generation_version: int | None = None
        self._syncs = 0
        self._awake = False
        self._training = RLock()
        """Held by whoever uses the training side: weights are not carried over in the middle of an update."""

    @property
    def policy_version(self) -> int:
        """Calls that changed the weights so far."""
        return self._version

    @property
    def pieces(self) -> Pieces:
        with self._training:
            if self._built is None:
                self._built = self._assemble(self._start)
            return self._built

    def effective_sampling(self, asked: Sampling) -> EffectiveSampling:
        """What the recipe's ``policy.generation`` says, whatever is ``asked``: a NeMo-RL generation has no request of
        its own. NeMo-RL divides the logits of training by the same temperature."""
        generation = self._config.policy.generation
        return EffectiveSampling(
            temperature=generation.temperature,
            training_temperature=generation.temperature,
            top_p=generation.top_p,
            top_k=None if generation.top_k == -1 else generation.top_k,
            model_file=self._model_file,
        )

    def rollout(self, tasks: Sequence[Task], sampling: Sampling) -> list[Trajectory]:
        """Raises ValueError for a sampling that NeMo-RL's generation cannot be asked for."""
        if not tasks:
            return []
        self._check(sampling)
        pieces = self.pieces
        self._wake(pieces, may_lag=sampling.may_lag)
        rollout = self._roller.roll(
            pieces, self.episode, tasks, greedy=sampling.greedy, policy_version=self._generation_version or 0
        )
        if pieces.dashboard is not None:
            pieces.dashboard.log_metrics(dict(rollout.metrics), self._version, prefix="rollout")
        return rollout.trajectories

    def logprobs(self, trajectories: Sequence[Trajectory]) -> list[list[float]]:
        if not trajectories:
            return []
        pieces = self.pieces
        rows = fill_up([range(len(trajectories))], [len(t.token_ids) for t in trajectories], pieces.row_shape.rows)
        columns = token_columns(trajectories, rows, pieces.row_shape)
        with self._training:
            return rows_of(self._forward(pieces, columns), trajectories, rows)

    def update(self, batch: Sequence[Weighted], loss: LossConfig) -> Mapping[str, float]:
        """Raises ValueError for a batch without a sampled token."""
        batch = [item for item in batch if item.trajectory.sampled_tokens]
        if not batch:
            raise ValueError("update got no trajectory with a sampled token: nothing to train on, skip the step")
        pieces = self.pieces
        trajectories = [item.trajectory for item in batch]
        steps = optimiser_steps(
            len(batch), self._config.policy.train_global_batch_size, [self._config.grpo.seed, self._version]
        )
        rows = fill_up(steps, [len(t.token_ids) for t in trajectories], pieces.row_shape.rows)
        columns = token_columns(trajectories, rows, pieces.row_shape)
        columns |= update_columns(batch, rows, columns["input_ids"].shape[1])
        with self._training:
            columns["prev_logprobs"] = self._previous(pieces, batch, rows, columns)
            columns["reference_policy_logprobs"] = self._reference(pieces, columns, loss)
            results = self._train(pieces, columns, loss, rows.global_batch)
            self._version += 1
        return update_metrics(results, len(steps), loss) | {
            "optimizer_steps": float(len(steps)),
            "trained_tokens": float(sum(trajectory.sampled_tokens for trajectory in trajectories)),
            "trained_trajectories": float(len(batch)),
            "filled_rows": float(rows.fillers),
        }

    def sft(self, trajectories: Sequence[Trajectory]) -> Mapping[str, float]:
        """Always raises ValueError: NeMo-RL's policy has one optimiser and one schedule, those of the recipe's RL."""
        raise ValueError(
            f"{len(trajectories)} demonstrations for an engine that has no SFT step: run the SFT stage first "
            "(examples/run_sft.py), set policy.model_name to what it wrote, and sft.max_num_steps to 0"
        )

    def sync_weights(self) -> None:
        """After each step. Weights are carried over at the next rollout, once ``engine.sync_every`` steps have gone;
        with ``grpo.async_grpo.in_flight_weight_updates`` at once, to episodes that are under way too."""
        self._syncs += 1
        ahead = self._config.grpo.async_grpo
        if ahead.enabled and ahead.in_flight_weight_updates and self._generation_version not in (None, self._version):
            self._carry_over(self.pieces)
            if ahead.recompute_kv_cache_after_weight_updates:
                self.pieces.generation.invalidate_kv_cache()

    def save(self, path: Path) -> None:
        """A Hugging Face folder where the backend writes consolidated weights (``checkpointing.save_consolidated``),
        with NeMo-RL's own checkpoint in ``weights``, ``optimizer`` and ``tokenizer`` beside it."""
        pieces = self.pieces
        checkpointing = pieces.master["checkpointing"]
        with self._training, whole_folder(path) as folder:
            self._clear_for_training(pieces)
            pieces.policy.prepare_for_training()
            pieces.policy.save_checkpoint(
                weights_path=str(folder / WEIGHTS),
                optimizer_path=str(folder / OPTIMIZER) if checkpointing["save_optimizer"] else None,
                tokenizer_path=str(folder / TOKENIZER),
                checkpointing_cfg=checkpointing,
            )
            lay_out(folder)
            state = {"policy_version": self._version, "syncs": self._syncs, "model": self._start.model}
            (folder / _STATE).write_text(json.dumps(state), encoding="utf-8")

    def load(self, path: Path) -> None:
        """Raises FileNotFoundError when the folder was not written by ``save``."""
        state = json.loads(saved_state(path, _STATE).read_text(encoding="utf-8"))
        optimizer = path / OPTIMIZER
        self._rebuild(Start(path / WEIGHTS, optimizer if optimizer.exists() else None, state["model"]))
        self._loaded = path
        self._version, self._syncs = int(state["policy_version"]), int(state["syncs"])

    def restart(self) -> None:
        """Raises RuntimeError where no checkpoint was loaded, ValueError for one that is no Hugging Face folder: the
        cluster is built again from its weights as from a model, reference and optimisers with it."""
        if self._loaded is None:
            raise RuntimeError("restart needs the checkpoint whose weights it begins with: call load before it")
        if not (self._loaded / "config.json").is_file():
            raise ValueError(
                f"{self._loaded} has no config.json: export it first (training.engines.nemo_rl.export), or set "
                "checkpointing.save_consolidated to true under nemo_rl"
            )
        self._rebuild(Start(model=str(self._loaded)))

    def log_metrics(self, step: int, phase: str, metrics: Mapping[str, float]) -> None:
        """The loop's own numbers, beside NeMo-RL's, on the boards of its logger."""
        if self._built is not None and self._built.dashboard is not None:
            self._built.dashboard.log_metrics(dict(metrics), step, prefix=phase)

    def _rebuild(self, start: Start) -> None:
        if self._built is not None:
            self._built.shut_down()
        self._built, self._start = None, start
        self._generation_version, self._awake = None, False

    def _check(self, sampling: Sampling) -> None:
        own = self.effective_sampling(sampling)
        asked = (sampling.temperature, sampling.top_p, sampling.top_k)
        if not sampling.greedy and (asked != (own.temperature, own.top_p, own.top_k) or sampling.min_p):
            raise ValueError(
                f"a rollout was asked for with {sampling}; NeMo-RL's generation draws with temperature "
                f"{own.temperature}, top_p {own.top_p}, top_k {own.top_k} and no min_p: set policy.generation"
            )

    def _wake(self, pieces: Pieces, *, may_lag: bool) -> None:
        """Generation with weights as new as they must be."""
        due = self._syncs % self._config.engine.sync_every == 0 or not may_lag
        if self._generation_version is None or (due and self._generation_version != self._version):
            self._finish(pieces)  # what its caches hold is of the old weights
            self._carry_over(pieces)
        elif not self._awake:
            if pieces.colocated:
                pieces.policy.offload_after_refit()
            if not pieces.generation.prepare_for_generation():
                raise RuntimeError("NeMo-RL's generation could not be woken up; what it printed above says why")
        self._awake = True

    def _carry_over(self, pieces: Pieces) -> None:
        with self._training:
            refit(pieces)
            self._generation_version = self._version

    def _finish(self, pieces: Pieces) -> None:
        if self._awake:
            self._awake = False
            if not pieces.generation.finish_generation():
                raise RuntimeError("NeMo-RL's generation could not be put to sleep; what it printed above says why")

    def _clear_for_training(self, pieces: Pieces) -> None:
        """On shared GPUs both phases of a step find generation awake; it gives its memory back where training needs
        it."""
        if pieces.colocated:
            self._finish(pieces)

    def _to_score(self, pieces: Pieces, columns: Columns) -> Any:
        """What a pass for log-probs reads, with the workers ready for one."""
        self._clear_for_training(pieces)
        pieces.policy.prepare_for_lp_inference()
        return batched({name: columns[name] for name in _LOGPROB_COLUMNS})

    def _forward(self, pieces: Pieces, columns: Columns) -> Tensor:
        return pieces.policy.get_logprobs(self._to_score(pieces, columns))["logprobs"]

    def _previous(self, pieces: Pieces, batch: Sequence[Weighted], rows: Rows, columns: Columns) -> Tensor:
        """One pass for all where any is not known: NeMo-RL's batches are of one shape."""
        previous = [each.previous for each in batch if each.previous is not None]
        if len(previous) < len(batch):
            return self._forward(pieces, columns)
        known = torch.zeros_like(columns["generation_logprobs"])
        for row, index in enumerate(rows.order):
            known[row, : len(previous[index])] = torch.tensor(previous[index])
        return known

    def _reference(self, pieces: Pieces, columns: Columns, loss: LossConfig) -> Tensor:
        if loss.reference_policy_kl_penalty == 0:
            return torch.zeros_like(columns["generation_logprobs"])
        return pieces.policy.get_reference_policy_logprobs(self._to_score(pieces, columns))["reference_logprobs"]

    def _train(self, pieces: Pieces, columns: Columns, loss: LossConfig, global_batch: int) -> Mapping[str, Any]:
        # The loss is NeMo-RL's class: it can be imported only where NeMo-RL is.
        from training.engines.nemo_rl.loss import RoleLossFn

        self._clear_for_training(pieces)
        pieces.policy.prepare_for_training()
        return pieces.policy.train(batched(columns), RoleLossFn(loss), gbs=global_batch)
