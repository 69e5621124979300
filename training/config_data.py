"""The ``data`` section: a file of questions to train on, how ``examples/make_tasks.py`` builds one, and what
``examples/make_sft_data.py`` makes of it."""

from __future__ import annotations

from typing import Literal

from corpus_index.graph import GraphSettings
from rewards.endpoint import EndpointSettings
from training.config_base import PositiveInt, Section
from training.config_trajectories import TrajectoriesConfig


class DataFileConfig(Section):
    data_path: str | None = None
    """Questions as JSONL (``environments.questions``); null: the facts of a synthetic company."""


class GenerateConfig(Section):
    """Ours."""

    seed: int = 0
    writer: Literal["templates", "endpoint"] = "templates"
    """Who puts a path of the graph into words. templates: the company's own wordings, where the facts are known.
    endpoint: the model behind ``endpoint``, on any corpus."""
    endpoint: EndpointSettings = EndpointSettings()
    graph: GraphSettings = GraphSettings()
    per_round: PositiveInt = 16
    """Tries made side by side; between rounds the progress is saved."""
    mail_chars: PositiveInt = 4000
    """Of a mail's body that the endpoint is shown."""
    patience: PositiveInt = 50
    """Rounds in a row without a new question after which a number of hops is given up."""


class DataConfig(Section):
    """NeMo-RL's section; it is read in ``selfplay.mode: fixed``."""

    shuffle: bool = True
    """Every pass over the file in an order of its own, drawn from ``grpo.seed``; false: as it stands."""
    train: DataFileConfig = DataFileConfig()
    generate: GenerateConfig = GenerateConfig()
    trajectories: TrajectoriesConfig = TrajectoriesConfig()
