from __future__ import annotations

import quopri
import tarfile
from datetime import UTC, datetime, timedelta, timezone
from email.message import EmailMessage
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_index.document import Document
from corpus_index.sources.dates import enron_date, parse_date
from corpus_index.sources.items import Mail, RawMail, Unread
from corpus_index.sources.mail import parse_mail
from corpus_index.sources.people import clean_address, clean_name, parse_people, rebuild_address
from corpus_index.sources.text import decode_bytes, html_to_text, repair_quoted_printable, tidy


def parse(data: bytes) -> Document:
    mail = parse_mail(RawMail(data, "maildir/ann/inbox/1.", "ann", "inbox"))
    assert isinstance(mail, Mail)
    return mail.document


def head(**fields: str) -> bytes:
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    return "\n".join(lines).encode() + b"\n\n"


# -- headers ---------------------------------------------------------------------------------------------------------


def test_unfolded_subject_keeps_the_headers_after_it() -> None:
    document = parse(
        b"From: ann@x.org\r\nSubject: Meeting with \nLeslie Rich, VP &\r\n Doris Kelly w/\nEvergreen Co.\r\n"
        b"Content-Type: text/plain; charset=us-ascii\r\nX-To: Bob Jones\r\n\r\nbody\nline"
    )
    assert document.subject == "Meeting with Leslie Rich, VP & Doris Kelly w/ Evergreen Co."
    assert document.recipient_names == ("Bob Jones",)
    assert document.body == "body\nline"


def test_crlf_head_with_lf_body_equals_lf_throughout() -> None:
    dos = b"From: a@x.org\r\nDate: Mon, 14 May 2001 09:00:00 -0700\r\nX-FileName: a.nsf\r\n\r\nbody\nmore\n"
    assert parse(dos) == parse(dos.replace(b"\r\n", b"\n"))


def test_folded_recipients_and_cc_but_not_bcc() -> None:
    document = parse(b"From: a@x.org\nTo: b@x.org, \n\tc@x.org\nCc: d@x.org\nBcc: secret@x.org\n\nbody")
    assert document.recipients == ("b@x.org", "c@x.org", "d@x.org")


def test_missing_to_falls_back_on_x_to() -> None:
    fallback = head(From="a@x.org", X_To="Allen, Phillip K. </O=ENRON/OU=NA/CN=RECIPIENTS/CN=PALLEN>, Bob <bob@y.org>")
    document = parse(fallback + b"b")
    assert document.recipients == ("bob@y.org",)
    assert document.recipient_names == ("Phillip K. Allen", "Bob")
    document = parse(head(From="a@x.org", X_To="Ina Rangel/HOU/ECT@ECT, Circuit Provisioning@ENRON") + b"b")
    assert document.recipients == ()
    assert document.recipient_names == ("Ina Rangel", "Circuit Provisioning")


def test_latin1_header_bytes_and_control_bytes() -> None:
    document = parse(b"From: a@x.org\nSubject: Caf\xe9 \x0f talk\x00\n\nbo\x07dy\x00\x0cnext")
    assert document.subject == "Café   talk"
    assert document.body == "bo dy\nnext"


def test_references_and_message_id() -> None:
    mail = parse_mail(RawMail(b"Message-ID: <c@x>\nReferences: <a@x> <b@x>\nIn-Reply-To: <b@x>\n\nbody", "s"))
    assert isinstance(mail, Mail)
    assert (mail.document.message_id, mail.references) == ("c@x", ("a@x", "b@x"))


def test_mbox_line_and_headers_with_space_before_the_colon() -> None:
    assert parse(b"From ann Mon May 14 09:00:00 2001\nFrom: a@x.org\n\nbody").sender == "a@x.org"
    assert parse(b"From : a@x.org\nSubject : s\n\nbody").sender == "a@x.org"


# -- people ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("K..Allen@ENRON.com", "k.allen@enron.com"),
        ("\"'ann@x.org'\"", "ann@x.org"),
        ("p..o'neil@enron.com", "p.o'neil@enron.com"),
        ("<.ward@enron.com>", "ward@enron.com"),
        ("mailto:ann@x.org", "ann@x.org"),
        ("ann@x.org.", "ann@x.org"),
        ("Ann Lee", ""),
        ("ann@", ""),
    ],
)
def test_clean_address(raw: str, clean: str) -> None:
    assert clean_address(raw) == clean


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("Allen, Phillip K.", "Phillip K. Allen"),
        ("Phillip K Allen/HOU/ECT@ECT", "Phillip K Allen"),
        ("Robert Billbrough, Sr.", "Robert Billbrough, Sr."),
        ('"Ann  Lee"', "Ann Lee"),
        ("/O=ENRON/OU=NA/CN=RECIPIENTS/CN=PALLEN", ""),
        ("=?utf-8?q?J=C3=B8rn_St?=", "Jørn St"),
    ],
)
def test_clean_name(raw: str, clean: str) -> None:
    assert clean_name(raw) == clean


def test_people_lists() -> None:
    assert parse_people("a@x.org, b@x.org") == [("", "a@x.org"), ("", "b@x.org")]
    assert parse_people('"Lee, Ann" <a@x.org>, Bob <b@x.org>') == [("Ann Lee", "a@x.org"), ("Bob", "b@x.org")]
    assert parse_people("Team: a@x.org, b@x.org;") == [("", "a@x.org"), ("", "b@x.org")]
    assert parse_people('"Brad G" <brad@x.org>@ENRON') == [("Brad G", "brad@x.org")]
    assert parse_people("slafontaine@globalp.com @ ENRON") == [("", "slafontaine@globalp.com")]
    assert parse_people("") == []


def test_lost_first_name_is_rebuilt_only_where_the_last_name_agrees() -> None:
    assert rebuild_address("k.allen@enron.com", "k..allen@enron.com", "Phillip K. Allen") == "phillip.allen@enron.com"
    assert rebuild_address("k.allen@enron.com", "k..allen@enron.com", "Ina Rangel") == "k.allen@enron.com"
    assert rebuild_address("k.allen@enron.com", "k.allen@enron.com", "Phillip K. Allen") == "k.allen@enron.com"
    document = parse(head(From="k..allen@enron.com", X_From="Allen, Phillip K. </O=ENRON/CN=PALLEN>") + b"b")
    assert (document.sender, document.sender_name) == ("phillip.allen@enron.com", "Phillip K. Allen")


@settings(deadline=None)
@given(st.text(max_size=200))
def test_people_never_raise_and_addresses_are_clean(value: str) -> None:
    for name, address in parse_people(value):
        assert address == address.lower()
        assert address == "" or (address.count("@") == 1 and " " not in address)
        assert name == name.strip()


# -- dates -----------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    st.datetimes(datetime(1970, 1, 2), datetime(2099, 1, 1)).map(lambda when: when.replace(microsecond=0)),
    st.integers(-12 * 60, 14 * 60),
)
def test_dates_equal_the_instant_they_were_written_from(when: datetime, minutes: int) -> None:
    aware = when.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    expected = None if aware == datetime(1980, 1, 1, tzinfo=UTC) else aware.astimezone(UTC)
    assert parse_date(aware.strftime("%a, %d %b %Y %H:%M:%S %z")) == expected


@pytest.mark.parametrize(
    "value", ["", "soon", "Mon, 31 Feb 2001 09:00:00 -0700", "Mon, 31 Dec 1979 16:00:00 -0800 (PST)"]
)
def test_unreadable_and_placeholder_dates_are_none(value: str) -> None:
    assert parse_date(value) is None


def test_outlook_is_right_and_notes_is_shifted_to_houston() -> None:
    # Outlook: 09:00 -0700 is 11:00 in Houston (UTC-5 in summer), which is 16:00 UTC.
    assert enron_date("Mon, 14 May 2001 09:00:00 -0700 (PDT)", "ALLEN (Non-Privileged).pst") == datetime(
        2001, 5, 14, 16, tzinfo=UTC
    )
    # Notes: 09:00 -0700 turned to UTC (16:00) is the clock in Houston; 16:00 at UTC-5 is 21:00 UTC.
    assert enron_date("Mon, 14 May 2001 09:00:00 -0700 (PDT)", "pallen.nsf") == datetime(2001, 5, 14, 21, tzinfo=UTC)
    # In winter: 09:00 -0800 is 17:00 in Houston at UTC-6, 23:00 UTC.
    assert enron_date("Mon, 15 Jan 2001 09:00:00 -0800 (PST)", "pallen.nsf") == datetime(2001, 1, 15, 23, tzinfo=UTC)


# -- bodies ----------------------------------------------------------------------------------------------------------


def test_quoted_printable_left_in_a_plain_body() -> None:
    assert repair_quoted_printable(b"see year=2001 and x=20y\n") == b"see year=2001 and x=20y\n"
    assert repair_quoted_printable(b"Hello=20\nyear=2001 =\n") == b"Hello \nyear=2001 =\n"
    long_line = b"a" * 75
    assert repair_quoted_printable(long_line + b"=\nb") == long_line + b"b"
    assert repair_quoted_printable(b"a=09b c=09\nx=") == b"a=09b c\t\nx="


@settings(deadline=None)
@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\r\x00"), min_size=1, max_size=300))
def test_declared_quoted_printable_round_trips(text: str) -> None:
    body = quopri.encodestring(text.encode())
    document = parse(
        head(From="a@x.org", Content_Transfer_Encoding="quoted-printable", Content_Type="text/plain; charset=utf-8")
        + body
    )
    if "</" not in text:
        assert document.body == tidy(text)


def test_html_bodies_become_text() -> None:
    page = (
        "<html><head><title>no</title><style>p{}</style></head><body><p>One <b>bold</b>\nword</p><!-- x -->"
        "<table><tr><td>a</td><td>b &amp; c</td></tr></table>2 < 3<br>end</body></html>"
    )
    assert html_to_text(page) == "One bold word\n\na b & c\n\n2 < 3\nend"
    assert parse(head(From="a@x.org") + page.encode()).body == html_to_text(page)
    assert parse(head(From="a@x.org", Content_Type="text/html") + page.encode()).body == html_to_text(page)
    assert parse(head(From="a@x.org") + b"if a < b and c > d </ x").body == "if a < b and c > d </ x"


def test_attachments_that_the_text_still_names() -> None:
    body = b"see <<plan.doc>> and <<File: a b.xls>>, www.x.com\n - report.xls\n - notes.com\n"
    assert parse(head(From="a@x.org") + body).attachments == ("plan.doc", "a b.xls", "report.xls")


def test_multipart_prefers_plain_and_lists_files() -> None:
    message = EmailMessage()
    message["From"], message["Subject"] = "Zoë <zoe@x.org>", "Grüße"
    message.set_content("plain text\n")
    message.add_alternative("<p>markup</p>", subtype="html")
    message.add_attachment(b"12", maintype="application", subtype="pdf", filename="Über.pdf")
    document = parse(message.as_bytes())
    assert (document.subject, document.sender_name, document.sender) == ("Grüße", "Zoë", "zoe@x.org")
    assert document.body == "plain text\n"
    assert document.attachments == ("Über.pdf",)


@pytest.mark.parametrize(
    ("data", "charset", "text"),
    [
        (b"caf\xe9", "", "café"),
        ("café".encode(), "us-ascii", "café"),
        (b"\x93hi\x94", "iso-8859-1", "\x93hi\x94"),
        ("日本".encode("iso-2022-jp"), "ISO-2022-JP", "日本"),
        (b"caf\xe9", "no-such-charset", "café"),
        (b"\x81", "utf-8", "\x81"),
    ],
)
def test_decode_bytes(data: bytes, charset: str, text: str) -> None:
    assert decode_bytes(data, charset) == text


@settings(deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    for blob in (data, b"Subject: x\n" + data, b"Content-Type: multipart/mixed; boundary=b\n\n--b\n" + data):
        result = parse_mail(RawMail(blob, "source"))
        assert isinstance(result, Mail | Unread)
        if isinstance(result, Mail):
            assert "\x00" not in result.document.body
            assert "\r" not in result.document.body
            assert "\n" not in result.document.subject


# -- real mail -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(shared_data: Path) -> dict[str, bytes]:
    """The first 1,500 messages of the sample, raw."""
    found: dict[str, bytes] = {}
    with tarfile.open(shared_data / "enron" / "enron-maildir-sample.tar.xz", "r|*") as archive:
        for member in archive:
            if member.isfile():
                handle = archive.extractfile(member)
                assert handle is not None
                found[member.name] = handle.read()
                if len(found) == 1500:
                    break
    return found


def test_real_mail_agrees_with_the_standard_library(real: dict[str, bytes]) -> None:
    from email import message_from_bytes, policy

    for source, data in list(real.items())[::10]:
        document = parse(data)
        message = message_from_bytes(data, policy=policy.default)
        assert document.message_id == str(message["Message-ID"]).strip("<>"), source
        assert document.subject.split() == str(message["Subject"] or "").split(), source
        expected = {clean_address(item) for field in ("To", "Cc") for item in str(message[field] or "").split(",")} - {
            ""
        }
        if expected and ".." not in str(message["To"]) + str(message["Cc"]):
            assert set(document.recipients) == expected, source
        if message["X-FileName"].endswith(".pst") and document.date:
            assert document.date == message["Date"].datetime.astimezone(UTC), source


def test_real_notes_clock_agrees_with_the_forward_line(real: dict[str, bytes]) -> None:
    # "Forwarded by Phillip K Allen/HOU/ECT on 09/26/2000 02:00 PM" was written as this mail was sent, in Houston.
    data = real["maildir/allen-p/_sent_mail/119."]
    assert b"on 09/26/2000 \n02:00 PM" in data
    date = parse(data).date
    assert date is not None
    houston = date - timedelta(hours=5)
    assert abs(houston.replace(tzinfo=None) - datetime(2000, 9, 26, 14, 0)) < timedelta(minutes=10)
