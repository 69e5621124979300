from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_index.document import Document
from corpus_index.quoting import bare_subject, is_reply, split_quoted
from corpus_index.threads import Threads, trace

START = datetime(2001, 5, 14, 9, tzinfo=UTC)


def mail(number: int, subject: str, body: str = "short", days: float = 0.0, **changes: object) -> Document:
    base = Document(
        id=f"id{number}",
        subject=subject,
        body=body,
        sender="ann@x.org",
        recipients=("bob@x.org",),
        date=START + timedelta(days=days),
        source=f"s{number}",
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def assign(documents: list[Document], references: dict[str, tuple[str, ...]] | None = None) -> list[str]:
    threads = Threads(window_days=30)
    return [threads.assign(item, (references or {}).get(item.id, ()), trace(item)) for item in documents]


# -- subjects and quotes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "bare", "reply"),
    [
        ("RE: Fw: Re[2]:  Gas  deal", "gas deal", True),
        ("Fwd:x", "x", True),
        ("Regarding: gas", "regarding: gas", False),
        ("Gas: re: deal", "gas: re: deal", False),
        ("", "", False),
        ("Re:", "", True),
    ],
)
def test_subjects(subject: str, bare: str, reply: bool) -> None:
    assert bare_subject(subject) == bare
    assert is_reply(subject) is reply


@pytest.mark.parametrize(
    "quoted",
    [
        "-----Original Message-----\nFrom: Bob\n\nold",
        " -----Original Message-----\nFrom: Bob",
        "--------------- Forwarded by Ann Lee/HOU/ECT on 09/26/2000 \n02:00 PM ---------------\n\nold",
        "----- Forwarded by Ann Lee/NA/Enron on 07/30/2001 02:35 PM -----\nold",
        "> old\n> lines",
        "On Mon, May 14, 2001 at 9:00, Bob Jones wrote:\n> old",
        "From: Bob Jones\nSent: Monday, May 14, 2001 9:00 AM\nTo: Ann\n\nold",
        "Ina Rangel\n09/06/2000 02:00 PM\nTo: Ann Lee/HOU/ECT@ECT\ncc:  \nSubject: x\n\nold",
        "\tIna Rangel@ECT\n\t09/06/2000 02:00 PM\n\t\t \n\t\t To: Ann Lee/HOU/ECT@ECT\n\t\t cc: \n\nold",
        "enorman@living.com on 01/18/2000 02:44:50 PM\nTo: Ann Lee/HOU/ECT@ECT\ncc: ben@living.com\nold",
    ],
)
def test_quotes_are_cut_at_their_marker(quoted: str) -> None:
    new = "Hi Bob,\n\nsee below - from: me to: you.\n\nAnn\n\n"
    assert split_quoted(new + quoted) == (new, quoted)
    assert split_quoted(quoted) == ("", quoted)


@pytest.mark.parametrize(
    "body",
    [
        "plain text",
        "From: here on we\nwalk To: the office",
        "a > b\n-- \nAnn",
        "-----\nnotes\n-----",
        "Bob wrote: hi",
        "To: do list\n1/2/2001",
    ],
)
def test_plain_text_has_no_quotes(body: str) -> None:
    assert split_quoted(body) == (body, "")


@settings(deadline=None)
@given(st.text(alphabet="ab> -:\n\tFromTOri@/0", max_size=200))
def test_split_loses_nothing(body: str) -> None:
    new, quoted = split_quoted(body)
    assert new + quoted == body


# -- threads ---------------------------------------------------------------------------------------------------------


def test_headers_join_whatever_the_subject_and_through_a_missing_parent() -> None:
    documents = [
        mail(1, "one", message_id="a@x"),
        mail(2, "two", message_id="b@x", days=200),
        mail(3, "three", message_id="c@x"),
        mail(4, "four", message_id="d@x"),
        mail(5, "five", message_id="e@x"),
    ]
    first, second, third, fourth, fifth = assign(
        documents, {"id2": ("a@x",), "id3": ("b@x",), "id4": ("missing@x",), "id5": ("missing@x",)}
    )
    assert first == second == third != fourth == fifth


def test_a_parent_that_comes_later_joins_its_reply() -> None:
    reply, parent = assign(
        [mail(2, "Re: one", message_id="b@x"), mail(1, "renamed", message_id="a@x")], {"id2": ("a@x",)}
    )
    assert reply == parent


def test_subject_people_and_time() -> None:
    first, reply, stranger, late = assign(
        [
            mail(1, "gas deal"),
            mail(2, "RE: Gas deal", days=2, sender="bob@x.org", recipients=("cy@x.org",)),
            mail(3, "Re: gas deal", days=2, sender="dan@y.org", recipients=("eve@y.org",)),
            mail(4, "Re: gas deal", days=90),
        ]
    )
    assert first == reply
    assert len({first, stranger, late}) == 3


def test_a_weekly_report_is_many_threads_and_replies_go_to_the_nearest() -> None:
    weeks = [mail(number, "weekly report", days=7 * number) for number in range(4)]
    answer = mail(9, "Re: weekly report", days=14.2, sender="bob@x.org", recipients=("ann@x.org",))
    *opened, reply = assign([*weeks, answer])
    assert len(set(opened)) == 4
    assert reply == opened[2]


def test_no_subject_needs_quoted_text() -> None:
    body = "Please send me the curve for the west desk today."
    quoting = f"Done.\n\n-----Original Message-----\nFrom: Ann\nSent: Monday\nTo: Bob\n\n{body}\n"
    first, other, reply = assign(
        [mail(1, "", body), mail(2, ""), mail(3, "", quoting, days=1, sender="eve@z.org", recipients=())]
    )
    assert first == reply != other


def test_quotes_join_in_either_order_and_over_any_time() -> None:
    body = "Please send me the curve for the west desk today."
    original = mail(1, "curve", body)
    reply = mail(2, "Re: curve", f"Done.\n\n> {body}\n", days=100, sender="eve@z.org", recipients=("zoe@z.org",))
    assert len(set(assign([original, reply]))) == 1
    assert len(set(assign([reply, original]))) == 1


def test_given_threads_stay_and_ids_are_stable() -> None:
    assert assign([mail(1, "x", thread="t9")]) == ["t9"]
    documents = [mail(number, f"topic {number % 3}", days=number) for number in range(9)]
    ids = assign(documents)
    assert ids == assign(documents)
    assert all(len(item) == 8 and item.isalnum() and item == item.lower() for item in ids)
