"""One sample as a page on which everyone can see what is trained and what is not."""

from __future__ import annotations

from html import escape
from itertools import groupby

from environments.chat_format import ChatFormat
from training.console import printable
from training.sft.samples import Kind, Sample, token_kinds

_COLOURS = {
    Kind.REASONING: "#b7e4c7",
    Kind.CALL: "#8ecae6",
    Kind.SUBMISSION: "#ffd166",
    Kind.ANSWER: "#b7e4c7",
}
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 14px/1.5 ui-monospace, monospace; max-width: 60rem; margin: 2rem auto; }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; }}
.masked {{ color: #888; }}
{colours}
</style></head><body>
<p>{title}. Coloured: in the loss. Grey: seen, not trained.</p>
<p>{legend}</p>
<pre>{body}</pre>
</body></html>
"""


def sample_page(sample: Sample, chat: ChatFormat) -> str:
    """HTML. What stands in the sample is untrusted and escaped; every run of tokens of one kind is one span."""
    trajectory = sample.trajectory
    marked = zip(token_kinds(trajectory, chat), trajectory.loss_mask, trajectory.token_ids, strict=True)
    spans: list[str] = []
    for (kind, trained), run in groupby(marked, key=lambda token: (token[0], token[1])):
        text = escape(printable(_plain([token for _, _, token in run], chat)))
        style = _class(kind) if trained else "masked"
        spans.append(f'<span class="{style}" title="{kind.value}">{text}</span>')
    colours = "\n".join(f".{_class(kind)} {{ background: {colour}; }}" for kind, colour in _COLOURS.items())
    legend = " ".join(f'<span class="{_class(kind)}">{kind.value}</span>' for kind in _COLOURS)
    trained = f"{trajectory.sampled_tokens} of {len(trajectory.token_ids)} tokens trained"
    title = escape(printable(f"set {sample.source}, {trajectory.uid}: {trained}"))
    return _PAGE.format(title=title, colours=colours, legend=legend, body="".join(spans))


def _class(kind: Kind) -> str:
    return kind.name.lower()


def _plain(ids: list[int], chat: ChatFormat) -> str:
    return str(chat.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))
