"""``data.trajectories``: who solves which tasks, and what becomes of the episodes (``training.sft_data``)."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from environments.chat_rows import Form
from rewards.endpoint import EndpointSettings
from training.config_base import NonNegativeFloat, NonNegativeInt, PositiveInt, Section, refuse

Thoughts = Literal["think", "plain", "none"]
Pattern = Literal["change_plan", "refine_query", "compare", "verify", "ask_missing"]
StageName = Literal["correct", "clean", "scenario", "translate", "polish", "deduplicate", "split"]
Share = Annotated[float, Field(ge=0, le=1)]


class TeacherConfig(Section):
    kind: Literal["expert", "endpoint", "policy"] = "expert"
    """expert: the scripts that know a company's facts. endpoint: the model behind ``endpoint``, by native tool calls.
    policy: ``policy.model_name`` itself, of whose samples the right ones are kept (rejection sampling)."""
    endpoint: EndpointSettings = EndpointSettings(max_tokens=4096)
    samples: PositiveInt = 1
    """Episodes of each task."""
    instructions: str = ""
    """Added to the system prompt that an endpoint's model sees; it is not in the data."""
    prompt_price: NonNegativeFloat = 0.0
    """Of a million prompt tokens of ``endpoint``, in whatever currency."""
    completion_price: NonNegativeFloat = 0.0
    """Of a million completion tokens, reasoning included."""
    send_reasoning: bool = True
    """Give a model its own earlier ``reasoning_content`` back, as gpt-oss wants it between tool calls."""
    language: Literal["en", "ja"] = "en"
    """Of the thoughts that the scripts are given; of other teachers, the label alone."""


class ScenarioConfig(Section):
    by: Literal["off", "templates", "endpoint"] = "off"
    """templates: extra tool calls are really played, in fixed words. endpoint: the model behind ``writer`` finds other
    words for the thoughts; the calls stay as they are."""
    share: Share = 0.5
    """Of the episodes, each of which gets a pattern of its own at random."""
    patterns: Annotated[tuple[Pattern, ...], Field(min_length=1, strict=False)] = (
        "change_plan",
        "refine_query",
        "compare",
        "verify",
        "ask_missing",
    )
    """change_plan: a first plan fails and is changed. refine_query: a wide search is narrowed by a bool query. compare:
    another candidate is read first. verify: the answer is looked up before it is handed in. ask_missing: what is known
    and what is still missing is said."""


class DeduplicateConfig(Section):
    threshold: Share = 0.8
    """Episodes with the same answer whose turns are so alike (Jaccard of runs of 5 words) are one."""
    permutations: PositiveInt = 64
    per_question: PositiveInt = 2
    """Different episodes of one question and one answer that are kept."""


class TrajectoriesConfig(Section):
    """Ours."""

    seed: int = 0
    questions_path: str | None = None
    """Solver tasks (``environments.questions``); null: a company's own questions."""
    solver_tasks: NonNegativeInt = 200
    """At most so many; hops in the shares of ``selfplay.hops`` where the questions are a company's own."""
    proposer_tasks: NonNegativeInt = 100
    """Seeds drawn from the corpus, hops and kind as ``selfplay`` says."""
    teacher: TeacherConfig = TeacherConfig()
    thoughts: Thoughts = "think"
    """Where a turn's thought stands: between <think> tags, as plain text before the call, or nowhere."""
    grounded: bool = True
    """A right answer counts only where every mail of its evidence was opened."""
    max_tool_errors: NonNegativeInt = 0
    """An episode with more failed or malformed calls is left out."""
    stages: Annotated[tuple[StageName, ...], Field(strict=False)] = (
        "correct",
        "clean",
        "scenario",
        "translate",
        "polish",
        "deduplicate",
        "split",
    )
    """In this order. A stage that is not set up (scenario ``off``, no language, no polish) is skipped."""
    scenario: ScenarioConfig = ScenarioConfig()
    translate: str | None = None
    """The language that the thoughts are translated into, as its model understands it (``Japanese``); null: none."""
    translate_label: str = ""
    """Label of that language in the rows (``ja``), by which ``sft`` mixes; empty: ``translate`` in lower case."""
    polish: bool = False
    """The model behind ``writer`` mends the wording of the thoughts."""
    writer: EndpointSettings = EndpointSettings(max_tokens=4096)
    """Translates, polishes and rewrites."""
    deduplicate: DeduplicateConfig = DeduplicateConfig()
    held_out: Share = 0.1
    """Share of the episodes that is kept for validation; no entity and no mail of evidence is on both sides."""
    form: Form = "text"
    """Of the files that are written last (``environments.chat_rows``)."""
    max_cost: NonNegativeFloat | None = None
    """Stop before the next task once the teacher's tokens have cost so much, by the prices of ``teacher``."""

    @model_validator(mode="after")
    def _set_up(self) -> Self:
        teacher = self.teacher
        asks = self.scenario.by == "endpoint" or self.translate is not None or self.polish
        priced = teacher.prompt_price > 0 or teacher.completion_price > 0
        refuse(
            {
                "data.trajectories: scenario.by endpoint, translate and polish need writer.model": (
                    asks and not self.writer.model
                ),
                "data.trajectories: teacher.kind endpoint needs teacher.endpoint.model": (
                    teacher.kind == "endpoint" and not teacher.endpoint.model
                ),
                f"data.trajectories: teacher.samples {teacher.samples} at temperature 0 would be one answer again and "
                "again; raise teacher.endpoint.temperature": (
                    teacher.kind == "endpoint" and teacher.samples > 1 and teacher.endpoint.temperature == 0
                ),
                "data.trajectories.max_cost needs teacher.prompt_price or completion_price": (
                    self.max_cost is not None and not priced
                ),
                "data.trajectories.stages names a stage twice": len(set(self.stages)) < len(self.stages),
                "data.trajectories.thoughts none leaves nothing to translate or to polish": (
                    self.thoughts == "none" and (self.translate is not None or self.polish)
                ),
            }
        )
        return self

    @property
    def language_label(self) -> str:
        """Of the thoughts once they are translated."""
        return self.translate_label or (self.translate or "").lower()
