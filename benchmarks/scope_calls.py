"""Random tool calls under a one-mailbox scope: how many mails of others come back? (None may.)

    uv run benchmarks/scope_calls.py --index embedded:enron.idx --mailbox allen-p --calls 10000
    uv run benchmarks/scope_calls.py --index opensearch:http://127.0.0.1:9200/enron --mailbox allen-p

Calls are drawn by ``--seed``: keyword searches with words of any mail, bool queries that name other mailboxes, senders,
threads and ids in every place, and reads of any mail's id. Exit code 1 if a foreign mail was shown or opened, or if the
calls found too little of the scope's own mail for the result to mean anything.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Sequence

from corpus_index.backends import open_index
from corpus_index.document import Document
from corpus_index.query import OCCURS
from corpus_index.scope import MailScope
from environments.protocol import ToolCall
from environments.tools import ToolBox, ToolSettings

SAMPLE = 400  # mails whose words, names and ids the calls are made of


def random_clause(mail: Document, rng: random.Random) -> dict[str, object]:
    words = re.findall(r"[A-Za-z]{3,}", f"{mail.subject} {mail.body[:400]}") or ["mail"]
    kind = rng.randrange(4)
    if kind == 0:
        return {"match": rng.choice(words)}
    if kind == 1:
        return {"phrase": " ".join(words[:2])}
    if kind == 2 and mail.date is not None:
        return {"after": mail.date.isoformat()}
    field = rng.choice(("mailbox", "folder", "thread", "id", "sender", "recipient"))
    exact = {"recipient": mail.recipients[0] if mail.recipients else "", "sender": mail.sender}
    value = str(exact.get(field, getattr(mail, field, "")))[:200].strip()
    return {"match": value or rng.choice(words), "field": field}


def random_call(mails: Sequence[Document], rng: random.Random) -> ToolCall:
    mail = rng.choice(mails)
    kind = rng.randrange(3)
    if kind == 0:
        return ToolCall(name="read_mail", arguments={"id": mail.id})
    if kind == 1:
        words = re.findall(r"[A-Za-z]{3,}", mail.subject) or ["mail"]
        return ToolCall(name="search_keyword", arguments={"keywords": rng.sample(words, min(len(words), 3))})
    lists = {occur: [random_clause(rng.choice(mails), rng) for _ in range(rng.randrange(3))] for occur in OCCURS}
    return ToolCall(name="search_bool", arguments={**lists, "should": [*lists["should"], random_clause(mail, rng)]})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", required=True)
    parser.add_argument("--mailbox", required=True, help="the only mailbox that may be seen")
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    index, rng = open_index(options.index), random.Random(options.seed)
    scope = MailScope(mailboxes=(options.mailbox,))
    own = set(index.within(scope).ids())
    ids = sorted(index.ids())
    chosen = rng.sample(ids, min(SAMPLE, len(ids))) + rng.sample(sorted(own), min(SAMPLE // 4, len(own)))
    mails = [mail for mail in map(index.read, chosen) if mail is not None]
    tools, counts = ToolBox(index, ToolSettings()), Counter[str]()
    for _ in range(options.calls):
        call = random_call(mails, rng)
        outcome = tools.run(call, scope)
        seen = {*outcome.shown_ids, *filter(None, [outcome.opened_id])}
        counts.update(calls=1, errors=bool(outcome.error), own=len(seen & own), foreign=len(seen - own))
        counts[f"{call.name} with mails"] += bool(seen)
    print(f"{options.index}: {len(own)} of {len(ids)} mails are in {scope.mailboxes[0]}")
    print("  ".join(f"{name} {count:,}" for name, count in counts.items()))
    sys.exit(1 if counts["foreign"] or counts["own"] < options.calls // 20 else 0)


if __name__ == "__main__":
    main()
