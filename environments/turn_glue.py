"""A turn's glue as text, for a framework that passes messages on as strings and tokenises each as it stands."""

from __future__ import annotations

from collections.abc import Sequence

from environments.chat_format import ChatFormat

OPEN_TURN = "\ue000"
"""Stands behind the text of a turn that did not close itself. No turn's own text keeps this private-use character, so a
policy cannot forge it."""


class TurnGlue:
    """``ChatFormat`` for strings: what is said, heard and observed between two turns.

    The ids of an ``observation`` are those that ``ChatFormat.observation_ids`` gives, if ``observation_ids`` makes
    them. Encoded as it stands by a plain tokenizer it decodes to the same text; a special token that a mail spells then
    rests on ``neutralise`` alone.
    """

    def __init__(self, chat: ChatFormat) -> None:
        self.chat = chat
        self._closings = {False: chat.close, True: chat.close.removeprefix(chat.end_of_turn)}

    def observation(self, text: str, *, ended: bool) -> str:
        """The assistant turn closed, the tool turn, the next turn opened. ``ended``: the turn closed itself."""
        return f"{self._closings[ended]}{text}{self.chat.reopen}"

    def result(self, observation: str) -> str:
        """The tool's text in an ``observation``. Raises ValueError where there is no such glue around it."""
        return self._taken_apart(observation)[0]

    def observation_ids(self, observation: str) -> list[int]:
        """Glue with special tokens, the text in it without. Empty for an empty one. Raises ValueError."""
        if not observation:
            return []
        text, ended = self._taken_apart(observation)
        return self.chat.observation_ids(text, ended=ended)

    def said(self, sampled: Sequence[int]) -> str:
        """A sampled turn as a message's text, with ``OPEN_TURN`` behind it where it did not close itself."""
        text = self.chat.text(sampled).replace(OPEN_TURN, "\ufffd")
        return text if self.chat.ended(sampled) else text + OPEN_TURN

    def heard(self, content: str) -> tuple[str, bool]:
        """The text of a turn for ``protocol.parse``, and whether it closed itself.

        A plain tokenizer's decoding has no mark: such a turn counts as closed, which holds for all but those that
        ``max_new_tokens`` cut.
        """
        return content.removesuffix(OPEN_TURN), not content.endswith(OPEN_TURN)

    def _taken_apart(self, observation: str) -> tuple[str, bool]:
        for ended, closing in self._closings.items():
            if observation.startswith(closing) and observation.endswith(self.chat.reopen):
                return observation[len(closing) : len(observation) - len(self.chat.reopen)], ended
        raise ValueError(
            f"an observation starts with {observation[:40]!r}; expected the template's {self._closings[True]!r}, and "
            f"{self.chat.reopen!r} at its end: use the environment's tokenizer and chat template in the rollout"
        )
