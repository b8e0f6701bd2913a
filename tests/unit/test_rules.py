from datetime import UTC, timedelta, timezone
from zoneinfo import ZoneInfo

import msgspec
import pytest

from tenure.core.calendar.rules import Cron, Every, Rule, make_rule
from tenure.errors import ConfigError


@pytest.mark.parametrize(
    ("tz", "message"),
    [
        ("Europe/Berlim", "There is no time zone 'Europe/Berlim'. Did you mean 'Europe/Berlin'"),
        ("berlin", "There is no time zone 'berlin'. Did you mean 'Europe/Berlin'"),
        ("europe/berlin", "There is no time zone 'europe/berlin'. Did you mean 'Europe/Berlin'"),
        ("New York", "There is no time zone 'New York'. Did you mean 'America/New_York'"),
        ("Qqq", "There is no time zone 'Qqq'. Use a name such as 'Europe/Berlin', 'America/New"),
        ("", "There is no time zone ''. Use a name such as"),
        ("../../etc/passwd", "There is no time zone '../../etc/passwd'."),
        ("/etc/localtime", "There is no time zone '/etc/localtime'."),
        ("zone.tab", "There is no time zone 'zone.tab'."),
        ("a\0b", "There is no time zone 'a\\x00b'."),
        ("localtime", "'localtime' differs between hosts. Use the name of a place"),
        ("right/UTC", "'right/UTC' differs between hosts."),
        (None, "tz must be the name of a time zone, such as 'Europe/Berlin', not None."),
        (timezone(timedelta(hours=1)), "tz must be the name of a time zone, such as"),
    ],
)
def test_an_unknown_zone_is_refused(tz, message: str):
    with pytest.raises(ConfigError) as caught:
        make_rule(cron="* * * * *", tz=tz)
    assert str(caught.value).startswith(message)


def test_a_zone_may_be_an_object_that_has_a_name():
    assert make_rule(cron="* * * * *", tz=ZoneInfo("Asia/Tokyo")).zone == "Asia/Tokyo"
    assert make_rule(cron="* * * * *", tz=UTC).zone == "UTC"


def test_a_timer_has_exactly_one_rule():
    with pytest.raises(ConfigError) as caught:
        make_rule()
    assert str(caught.value) == "A timer needs a rule: every='60s', or cron='30 2 * * *'."
    with pytest.raises(ConfigError, match="not by both: leave one out"):
        make_rule(every=5, cron="* * * * *")
    with pytest.raises(ConfigError) as caught:
        make_rule(every="1d", tz="Europe/Berlin")
    assert str(caught.value) == (
        "tz='Europe/Berlin' has no meaning for every=, whose ticks follow the time that passes. "
        "Use cron= for times of the day."
    )


def test_rules_that_mean_the_same_are_the_same():
    assert make_rule(cron="  30\t2 * * *\n") == Cron("30 2 * * *")
    assert make_rule(cron="@DAILY") == Cron("@daily")
    assert make_rule(every="1m") == make_rule(every=60)
    assert hash(make_rule(every="1m")) == hash(make_rule(every=60))


@pytest.mark.parametrize(
    "rule", [Every(90_000_000), Cron("@daily", "Asia/Tokyo"), Cron("*/5 0 9 * * MON-FRI")]
)
def test_a_rule_survives_json(rule: Rule):
    text = msgspec.json.encode((rule,))
    assert msgspec.json.decode(text, type=tuple[Rule, ...]) == (rule,)


def test_a_stored_rule_that_cannot_work_here_is_refused():
    stored = b'{"type":"cron","expression":"0 0 * * *","zone":"Mars/Olympus"}'
    with pytest.raises(msgspec.ValidationError, match="There is no time zone 'Mars/Olympus'"):
        msgspec.json.decode(stored, type=Rule)
