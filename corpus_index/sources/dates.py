"""The Date header to a UTC instant, with the two conventions of the Enron export."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from functools import lru_cache

_DATE = re.compile(
    r"(?:[A-Za-z]{2,9}\.?,?\s+)?(\d{1,2})[ -]([A-Za-z]{3})[a-z]*[ -](\d{4})\s+(\d\d?):(\d\d)(?::(\d\d))?\s*([+-]\d{4})"
)
_MONTHS = {
    m: i
    for i, m in enumerate(["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], start=1)
}
# 1979-12-31 16:00 -0800: what the export wrote where Outlook or Notes had no date.
_PLACEHOLDER = datetime(1980, 1, 1, tzinfo=UTC)
# Spam dates itself into the far future to stay on top of a list.
_LAST_YEAR = 2100
_HOUSTON_AHEAD = timedelta(hours=2)


@lru_cache(maxsize=64)
def _zone(offset: str) -> timezone | None:
    minutes = int(offset[1:3]) * 60 + int(offset[3:5])
    if minutes >= 24 * 60:
        return None
    return timezone(timedelta(minutes=-minutes if offset[0] == "-" else minutes))


def parse_date(value: str) -> datetime | None:
    """An RFC 5322 date as a timezone-aware UTC instant; None where it is unreadable or the export's placeholder.

    A date without a zone is taken as UTC.
    """
    match = _DATE.match(value.strip())
    try:
        if match:
            day, month, year, hour, minute, second, offset = match.groups()
            zone = _zone(offset)
            if zone is None:
                return None
            number = _MONTHS[month.lower()]
            when = datetime(int(year), number, int(day), int(hour), int(minute), int(second or 0), tzinfo=zone)
        else:
            when = parsedate_to_datetime(value)
        when = (when if when.tzinfo else when.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, KeyError, TypeError, IndexError, OverflowError):
        return None
    return None if when == _PLACEHOLDER or when.year > _LAST_YEAR else when


def enron_date(value: str, file_name: str) -> datetime | None:
    """The instant meant by a Date header of the Enron export. ``file_name`` is the X-FileName header.

    The export writes -0700 or -0800 whatever the sender's zone. Measured against the times quoted in replies:

    - exported from Outlook (``*.pst``): the header is right. Houston's wall clock is the header's clock plus 2 hours
      (1,332 of 1,645 matched quotes).
    - exported from Lotus Notes (``*.nsf``): the header turned to UTC *is* Houston's wall clock, that is the header's
      clock plus 7 hours under -0700 or plus 8 under -0800 (130 of 146). Houston is 2 hours ahead of the header's
      zone, in summer as in winter, so the true instant is that wall clock less (header offset + 2 hours): 5 hours
      later than the header says under -0700, 6 hours under -0800. Senders who were not in Houston stay off by their
      own distance; nothing in the export tells who they were.
    """
    when = parse_date(value)
    if when is None or not file_name.lower().endswith(".nsf"):
        return when
    if "-0700" in value:
        return when - (timedelta(hours=-7) + _HOUSTON_AHEAD)
    if "-0800" in value:
        return when - (timedelta(hours=-8) + _HOUSTON_AHEAD)
    return when
