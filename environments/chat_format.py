"""Messages <-> token ids by chat-template deltas: token in, token out.

Ids that a model sampled are never decoded and encoded again. A template is rendered with slots in place of the
contents. Its glue is encoded with special tokens; user and tool contents without, so that what a mail says can never
become a special token.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Message = Mapping[str, str]

_SLOT = re.compile(r"QZSLOT(\d+)QZ")
_TAG_CHARACTERS = frozenset("<>[]{}|｜")


class ChatFormatError(ValueError):
    """The chat template cannot be used for multi-turn token-in-token-out; the message names the difference."""


@dataclass(frozen=True, slots=True)
class Drift:
    """Where recorded ids and a re-render of the messages part. ``turn`` 0 is the prompt, k the k-th assistant turn and
    what follows it. ``recorded`` and ``rendered`` are the decoded 8 tokens on each side of ``index``."""

    turn: int
    index: int
    recorded: str
    rendered: str

    def __str__(self) -> str:
        return f"turn {self.turn}, token {self.index}: recorded {self.recorded!r}, re-rendered {self.rendered!r}"


class ChatFormat:
    """One tokenizer's way to write an episode.

    Tool results are a user turn holding ``<tool_response>\\n...\\n</tool_response>`` in ChatML templates and in those
    without a tool role; otherwise the template's tool turn. ``template_kwargs`` go to the template, such as
    ``enable_thinking=False`` (Qwen3) or a fixed ``date_string`` (Llama 3.1, which writes today's date otherwise).
    ``notes`` says how a plain re-render of the messages would differ from what is recorded here. ``close`` is the glue
    from an assistant turn to a tool result, ``end_of_turn`` its first token; ``reopen`` the glue from there to the next
    turn.

    Raises ChatFormatError when the template has no usable multi-turn form.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, template_kwargs: Mapping[str, Any] | None = None) -> None:
        if not tokenizer.chat_template:
            raise ChatFormatError("the tokenizer has no chat_template; set one (ChatML is a good choice)")
        self.tokenizer = tokenizer
        self._kwargs: dict[str, Any] = dict(template_kwargs or {})
        self._content = _ContentEncoder(tokenizer)
        self._merge_system = not self._renders([{"role": "system", "content": "a"}, {"role": "user", "content": "b"}])
        self._wrap_tools = not self._has_tool_turn()
        notes: list[str] = []
        if self._merge_system:
            notes.append("the template has no system role: the system text opens the first user turn")

        prompt = _slots("system", "user")
        step = _slots("system", "user", "assistant", "tool")
        twice = _slots("system", "user", "assistant", "tool", "assistant", "tool")
        opening = self._glue(prompt)
        once = self._glue(step)
        two = self._glue(twice)
        # Glue runs: [before first, between slots..., after last]; the last three of a step are
        # user -> assistant, assistant -> tool, tool -> next assistant.
        _, close, reopen = once[-3:]
        if two[-2] != close or two[-4] != close:
            raise ChatFormatError(
                f"the template closes an assistant turn differently from turn to turn: {close!r}, {two[-4]!r}, "
                f"{two[-2]!r}. Use a template whose text only grows"
            )
        if two[: len(opening) - 1] != opening[:-1]:
            raise ChatFormatError(
                f"the template rewrites the prompt once turns follow: {opening[:-1]!r} became "
                f"{two[: len(opening) - 1]!r}. Use a template whose text only grows"
            )
        if two[-3] != reopen or once[-3] != opening[-1]:
            notes.append(
                f"the template opens the turn to sample with {reopen!r} and past turns with {two[-3]!r}: recorded ids "
                "keep the first"
            )
        if self._drops_thoughts():
            notes.append("the template drops or moves earlier thoughts: recorded ids keep them")
        self.notes: tuple[str, ...] = tuple(notes)

        self.close, self.reopen = close, reopen
        self._close_ids = self._encode_glue(close)
        self._reopen_ids = self._encode_glue(reopen)
        special = self._added_ids()
        if not self._close_ids or self._close_ids[0] not in special:
            raise ChatFormatError(
                f"the template ends an assistant turn with {close!r}, which does not start with a special token; "
                "generation could not know where to stop"
            )
        self.end_of_turn_id: int = self._close_ids[0]
        self.end_of_turn: str = self._decode([self.end_of_turn_id])
        eos = cast("int | None", tokenizer.eos_token_id)
        others = () if eos is None or eos == self.end_of_turn_id else (eos,)
        self.end_of_turn_ids: tuple[int, ...] = (self.end_of_turn_id, *others)

    def special_tokens(self) -> tuple[str, ...]:
        """The tokenizer's special and tag-like added tokens: pass them to ToolBox."""
        return self._content.barred

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """The messages and the opening of the turn to sample."""
        return self._ids(messages, generate=True)

    def observation_ids(self, text: str, *, ended: bool) -> list[int]:
        """The ids between the last sampled one and the next turn: the assistant turn closed, the tool turn, the next
        turn opened. ``ended`` says that the last sampled id is ``end_of_turn_id``, which is then not repeated."""
        close, content, reopen = self.observation_parts(text, ended=ended)
        return [*close, *content, *reopen]

    def observation_parts(self, text: str, *, ended: bool) -> tuple[list[int], list[int], list[int]]:
        """``observation_ids`` in three: the template's glue, the text, glue again."""
        close = self._close_ids[1:] if ended else self._close_ids
        return close, self._content.encode(text), self._reopen_ids

    def content_ids(self, text: str) -> list[int]:
        """Text as the policy could have sampled it in pieces of plain text: no special tokens. For mail contents."""
        return self._content.encode(text)

    def turn_ids(self, text: str) -> list[int]:
        """An assistant turn written by a script: protocol tags as the tokenizer's own tokens, then the end of turn."""
        return [*self._encode_glue(text), self.end_of_turn_id]

    def ended(self, sampled: Sequence[int]) -> bool:
        """Whether a sampled turn closed itself (the ``ended`` of ``observation_ids``)."""
        return bool(sampled) and sampled[-1] == self.end_of_turn_id

    def text(self, sampled: Sequence[int]) -> str:
        """A sampled turn as text for ``protocol.parse``, without its end-of-turn token."""
        end = len(sampled)
        while end and sampled[end - 1] in self.end_of_turn_ids:
            end -= 1
        return self._decode(sampled[:end])

    def explain_drift(self, token_ids: Sequence[int], messages: Sequence[Message]) -> Drift | None:
        """Compare recorded ids with a plain re-render of the messages (what a message-level engine would feed).

        ``token_ids`` may end anywhere; None when they are a prefix of the re-render. A difference does no harm here; it
        shows what would break elsewhere.
        """
        turns = self._turns(messages)
        text = self._render(turns, generate=bool(turns) and turns[-1]["role"] != "assistant")
        rendered = self._encode_glue(text)
        recorded = list(token_ids)
        index = next((i for i, (a, b) in enumerate(zip(recorded, rendered, strict=False)) if a != b), None)
        if index is None:
            if len(recorded) <= len(rendered):
                return None
            index = len(rendered)
        window = slice(max(index - 8, 0), index + 8)
        return Drift(
            turn=self._turn_of(recorded, index),
            index=index,
            recorded=self._decode(recorded[window]),
            rendered=self._decode(rendered[window]),
        )

    def _turn_of(self, ids: Sequence[int], index: int) -> int:
        opening = self._reopen_ids
        cut = max((i + 1 for i, token in enumerate(opening) if token in self._added_ids()), default=1)
        mark = opening[cut - 1 :]  # from the last special token on: "<|im_start|>assistant\n"
        return sum(list(ids[i : i + len(mark)]) == mark for i in range(index - len(mark) + 1))

    def _turns(self, messages: Sequence[Message]) -> list[dict[str, str]]:
        turns: list[dict[str, str]] = []
        for message in messages:
            role, content = message["role"], message["content"]
            if role == "tool" and self._wrap_tools:
                role, content = "user", f"<tool_response>\n{content}\n</tool_response>"
            if role == "user" and self._merge_system and turns and turns[-1]["role"] == "system":
                role, content = "user", f"{turns.pop()['content']}\n\n{content}"
            turns.append({"role": role, "content": content})
        return turns

    def _render(self, turns: list[dict[str, str]], *, generate: bool) -> str:
        rendered = self.tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=generate, **self._kwargs
        )
        return cast("str", rendered)

    def _renders(self, turns: list[dict[str, str]]) -> bool:
        from jinja2 import TemplateError

        try:
            text = self._render(turns, generate=False)
        except (TemplateError, ValueError, TypeError):
            return False
        return all(turn["content"] in text for turn in turns)

    def _has_tool_turn(self) -> bool:
        turns = _slots("user", "assistant", "tool")
        if not self._renders(turns):
            return False
        text = self._render(turns, generate=False)
        if "<|im_start|>" in text:
            return False  # ChatML: Qwen2.5 and Qwen3 write tool results as a user turn, its kin know no tool turn
        as_user = self._render([*turns[:2], {"role": "user", "content": turns[2]["content"]}], generate=False)
        return text != as_user

    def _segments(self, messages: Sequence[Message], *, generate: bool) -> tuple[list[str], list[int]]:
        """Glue runs and the message numbers of the slots between them."""
        slots = [{"role": message["role"], "content": f"QZSLOT{i}QZ"} for i, message in enumerate(messages)]
        rendered = self._render(self._turns(slots), generate=generate)
        parts = _SLOT.split(rendered)
        glue, order = parts[::2], [int(number) for number in parts[1::2]]
        if order != list(range(len(messages))):
            roles = [message["role"] for message in messages]
            raise ChatFormatError(
                f"the template shows the messages {roles} in the order {order}, expected each once, in order"
            )
        for at, message in enumerate(messages):
            # Llama 3.1 writes a tool result as JSON; the text goes in as it is, so its quotes go.
            if message["role"] == "tool" and glue[at].endswith('"') and glue[at + 1].startswith('"'):
                glue[at], glue[at + 1] = glue[at][:-1], glue[at + 1][1:]
        return glue, order

    def _glue(self, messages: Sequence[Message]) -> list[str]:
        return self._segments(messages, generate=True)[0]

    def _ids(self, messages: Sequence[Message], *, generate: bool) -> list[int]:
        glue, order = self._segments(messages, generate=generate)
        ids = self._encode_glue(glue[0])
        for number, after in zip(order, glue[1:], strict=True):
            message = messages[number]
            # Our system prompt and past assistant turns hold the protocol's own tags; what may quote a mail is plain.
            encode = self._content.encode if message["role"] in ("user", "tool") else self._encode_glue
            ids += encode(message["content"])
            ids += self._encode_glue(after)
        return ids

    def _drops_thoughts(self) -> bool:
        turns = self._turns(_slots("system", "user", "assistant", "tool", "assistant"))
        slot = turns[-3]["content"]
        turns[-3]["content"] = f"<think>\nQZTHOUGHTQZ\n</think>\n\n{slot}"
        return turns[-3]["content"] not in self._render(turns, generate=False)

    def _encode_glue(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False)) if text else []

    def _decode(self, ids: Sequence[int]) -> str:
        decoded = self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return cast("str", decoded)

    def _added_ids(self) -> frozenset[int]:
        return frozenset(cast("dict[int, object]", self.tokenizer.added_tokens_decoder))


def _slots(*roles: str) -> list[dict[str, str]]:
    return [{"role": role, "content": f"QZSLOT{i}QZ"} for i, role in enumerate(roles)]


class _ContentEncoder:
    """Encodes text as if the tokenizer had no special tokens.

    ``split_special_tokens`` alone is not enough: it leaves added tokens that are not flagged special, such as Qwen's
    ``<tool_call>``. A copy of the fast tokenizer without them cannot know them. Plain added words (runs of spaces, say)
    stay, so that ordinary text keeps its usual ids.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        added = cast("dict[int, Any]", tokenizer.added_tokens_decoder)
        barred = {
            number: str(token.content)
            for number, token in added.items()
            if token.special or _TAG_CHARACTERS & set(str(token.content))
        }
        unknown = cast("int | None", tokenizer.unk_token_id)
        self.barred: tuple[str, ...] = tuple(sorted(barred.values()))
        self._barred_ids = frozenset(number for number in barred if number != unknown)
        self._tokenizer = tokenizer
        self._fast = self._without_specials(tokenizer, self.barred)

    @staticmethod
    def _without_specials(tokenizer: PreTrainedTokenizerBase, barred: Sequence[str]) -> Any | None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            return None
        from tokenizers import Tokenizer

        state = json.loads(backend.to_str())
        state["added_tokens"] = [token for token in state["added_tokens"] if token["content"] not in set(barred)]
        state["truncation"] = state["padding"] = None
        return Tokenizer.from_str(json.dumps(state))

    def encode(self, text: str) -> list[int]:
        ids = self._raw(text)
        if self._barred_ids.isdisjoint(ids):
            return ids
        # The model's own vocabulary holds the token as a whole piece: break it up, character by character.
        return [i for char in text for i in self._raw(char) if i not in self._barred_ids]

    def _raw(self, text: str) -> list[int]:
        if not text:
            return []
        if self._fast is not None:
            return list(self._fast.encode(text, add_special_tokens=False).ids)
        return list(self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))
