"""The stages that a recipe's ``data.trajectories`` sets up, each with all that its outcome depends on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from corpus_index.retries import RetrySettings
from environments.chat_format import ChatFormat
from environments.chat_rows import ChatRow
from environments.episode import EpisodeSettings
from environments.questions import corpus_fingerprint
from rewards.endpoint import Endpoint, EndpointSettings
from training.config import Config
from training.config_trajectories import StageName, TrajectoriesConfig
from training.game import Board
from training.recipe import make_episode, rule_judge
from training.sft_data.duplicates import deduplicate
from training.sft_data.filters import StageOutcome, clean, correct, fits_into
from training.sft_data.pipeline import Stage
from training.sft_data.rewriting import Writer, draw_patterns, polish, translate, write_scenarios
from training.sft_data.scenarios import play_scenarios
from training.sft_data.splitting import split

REPLIES = "replies.sqlite"


def make_stages(config: Config, board: Board, chat: ChatFormat, out: Path) -> list[Stage]:
    """Those of ``stages`` that are set up, in that order."""
    maker = _Maker(config, board, chat, out)
    makers: Mapping[StageName, Callable[[], Stage | None]] = {
        "correct": maker.correct,
        "clean": maker.clean,
        "scenario": maker.scenario,
        "translate": maker.translate,
        "polish": maker.polish,
        "deduplicate": maker.deduplicate,
        "split": maker.split,
    }
    return [stage for name in config.data.trajectories.stages if (stage := makers[name]()) is not None]


def play_settings(config: Config) -> dict[str, object]:
    """What an episode depends on beside its task; how often a call is retried does not count."""
    return {
        "tools": config.tools.model_dump(mode="json", exclude={*RetrySettings.model_fields, "max_concurrent_calls"}),
        "env": config.env.model_dump(mode="json", include={*EpisodeSettings.model_fields}),
        "scope": config.scope.model_dump(mode="json"),
    }


def reply_settings(endpoint: EndpointSettings) -> dict[str, object]:
    """What a reply depends on."""
    return endpoint.model_dump(mode="json", include={"base_url", "model", "temperature", "max_tokens"})


@dataclass(frozen=True)
class _Maker:
    config: Config
    board: Board
    chat: ChatFormat
    out: Path

    @property
    def part(self) -> TrajectoriesConfig:
        return self.config.data.trajectories

    def correct(self) -> Stage:
        checks, grounded = self.config.rewards.proposer.checks, self.part.grounded

        def run(rows: Sequence[ChatRow]) -> StageOutcome:
            return correct(
                rows,
                judge=rule_judge(self.config),
                checks=checks,
                read=lambda mail_id: self.board.read(mail_id, self.config.tools),
                grounded=grounded,
            )

        settings = {
            "checks": checks.model_dump(mode="json"),
            "answers": self.config.rewards.answers.model_dump(mode="json"),
            "grounded": grounded,
            "corpus": corpus_fingerprint(self.board.ids),
        }
        return Stage("correct", run, settings)

    def clean(self) -> Stage:
        errors = self.part.max_tool_errors
        return Stage(
            "clean", lambda rows: clean(rows, max_errors=errors, fits=self._fits()), {"errors": errors} | self._length()
        )

    def scenario(self) -> Stage | None:
        scenario, seed, style = self.part.scenario, self.part.seed, self.part.thoughts
        if scenario.by == "off":
            return None

        def run(rows: Sequence[ChatRow]) -> StageOutcome:
            patterns = draw_patterns(rows, scenario, seed)
            if scenario.by == "endpoint":
                return self._written(lambda writer: write_scenarios(rows, patterns, writer))
            episode = make_episode(self.config, self.chat, self.board.index)
            return play_scenarios(rows, patterns, episode, style, self._fits(), seed)

        settings = {"scenario": scenario.model_dump(mode="json"), "seed": seed} | self._writing()
        return Stage("scenario", run, settings | play_settings(self.config))

    def translate(self) -> Stage | None:
        language, label = self.part.translate, self.part.language_label
        if language is None:
            return None
        return Stage(
            "translate",
            lambda rows: self._written(lambda writer: translate(rows, writer, language, label)),
            {"language": language, "label": label} | self._writing(),
        )

    def polish(self) -> Stage | None:
        if not self.part.polish:
            return None
        return Stage("polish", lambda rows: self._written(lambda writer: polish(rows, writer)), self._writing())

    def deduplicate(self) -> Stage:
        settings = self.part.deduplicate
        return Stage("deduplicate", lambda rows: deduplicate(rows, settings), settings.model_dump(mode="json"))

    def split(self) -> Stage:
        share, seed = self.part.held_out, self.part.seed
        return Stage("split", lambda rows: split(rows, share, seed), {"share": share, "seed": seed})

    def _written(self, use: Callable[[Writer], StageOutcome]) -> StageOutcome:
        with closing(Endpoint(self.part.writer, self.out / REPLIES)) as endpoint:
            return use(Writer(endpoint, self.part.thoughts, self._fits()))

    def _writing(self) -> dict[str, object]:
        return {"writer": reply_settings(self.part.writer), "thoughts": self.part.thoughts} | self._length()

    def _fits(self) -> Callable[[ChatRow], bool]:
        return fits_into(self.chat, self.config.policy.max_total_sequence_length)

    def _length(self) -> dict[str, object]:
        return {"tokens": self.config.policy.max_total_sequence_length, "model": self.config.policy.model_name}
