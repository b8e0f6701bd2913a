import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.core.calendar.rules import Cron, make_rule
from tenure.errors import ConfigError
from tests.rig.sizes import SIZE
from tests.unit.instants import at

_MINUTE = "Allowed: 0 to 59, '*', ranges (a-b), lists (a,b) and steps (*/n)."
_DOM = (
    "Allowed: 1 to 31, '*', ranges (a-b), lists (a,b) and steps (*/n); "
    "L for the last day, LW for the last weekday."
)
_DOW = (
    "Allowed: 0 to 7 or SUN to SAT, '*', ranges (a-b), lists (a,b) and steps (*/n); "
    "5L for the last Friday, FRI#2 for the second."
)


@pytest.mark.parametrize(
    ("cron", "message"),
    [
        ("61 * * * *", f": the minute '61' is wrong: 61 is not from 0 to 59. {_MINUTE}"),
        ("*/0 * * * *", f": the minute '*/0' is wrong: a step is at least 1. {_MINUTE}"),
        (
            "*/90 * * * *",
            ": the minute '*/90' is wrong: the step 90 is longer than the whole range of 60. "
            + _MINUTE,
        ),
        ("*/x * * * *", f": the minute '*/X' is wrong: the step 'X' is no number. {_MINUTE}"),
        ("1,,2 * * * *", f": the minute '1,,2' is wrong: a part of the list is empty. {_MINUTE}"),
        ("1- * * * *", f": the minute '1-' is wrong: a number is missing in '1-'. {_MINUTE}"),
        ("-5 * * * *", f": the minute '-5' is wrong: a number is missing in '-5'. {_MINUTE}"),
        ("5.5 * * * *", f": the minute '5.5' is wrong: '5.5' is no number. {_MINUTE}"),
        ("٣ * * * *", f": the minute '٣' is wrong: '٣' is no number. {_MINUTE}"),
        (
            "5-5/2 * * * *",
            ": the minute '5-5/2' is wrong: the range '5-5' is one value, which has no steps. "
            + _MINUTE,
        ),
        ("60 * * * * *", f": the second '60' is wrong: 60 is not from 0 to 59. {_MINUTE}"),
        (
            "0 24 * * *",
            (
                ": the hour '24' is wrong: 24 is not from 0 to 23. Allowed: 0 to 23, '*', "
                "ranges (a-b), lists (a,b) and steps (*/n)."
            ),
        ),
        ("0 0 0 * *", f": the day of month '0' is wrong: 0 is not from 1 to 31. {_DOM}"),
        ("0 0 L-3 * *", f": the day of month 'L-3' is wrong: 'L' is no number. {_DOM}"),
        (
            "0 0 ? * *",
            f": the day of month '?' is wrong: '?' is not known here; write '*'. {_DOM}",
        ),
        (
            "0 0 * FOO *",
            (
                ": the month 'FOO' is wrong: 'FOO' is no number or name. Allowed: 1 to 12 or JAN "
                "to DEC, '*', ranges (a-b), lists (a,b) and steps (*/n)."
            ),
        ),
        (
            "0 0 * * FRI-SUN",
            (
                ": the day of week 'FRI-SUN' is wrong: the range 'FRI-SUN' goes down; write it as "
                f"two, around the end. {_DOW}"
            ),
        ),
        ("0 0 * * 8", f": the day of week '8' is wrong: 8 is not from 0 to 7. {_DOW}"),
        (
            "0 0 * * FRI#6",
            f": the day of week 'FRI#6' is wrong: 'FRI#6' is no number or name. {_DOW}",
        ),
        (
            "0 0 31 2 *",
            (
                " never comes: no date has the day of month '31' in the month '2' on the day of "
                "week '*'."
            ),
        ),
        (
            "0 0 */8 2 MON#5",
            (
                " never comes: no date has the day of month '*/8' in the month '2' on the day of "
                "week 'MON#5'."
            ),
        ),
        (
            "* * * *",
            (
                " has 4 fields. It takes 5 (minute, hour, day of month, month, day of week), or 6 "
                "with the second in front."
            ),
        ),
        (
            "",
            (
                " has 0 fields. It takes 5 (minute, hour, day of month, month, day of week), or 6 "
                "with the second in front."
            ),
        ),
        (
            "@dayly",
            (
                " is not known. Did you mean '@daily'? There are @hourly, @daily, @midnight, "
                "@weekly, @monthly, @yearly, @annually."
            ),
        ),
        ("@reboot", " is no time. Call the function where your program starts."),
    ],
)
def test_the_error_for_a_wrong_expression_says_where_it_is_wrong(cron: str, message: str):
    with pytest.raises(ConfigError) as caught:
        make_rule(cron=cron)
    assert str(caught.value) == f"cron={cron!r}{message}"


def test_an_expression_has_a_length():
    with pytest.raises(ConfigError) as caught:
        make_rule(cron="0," * 200)
    shown = "0," * 20
    assert str(caught.value) == f"cron='{shown}'... has 400 characters; at most 256 are allowed."
    long = f"{','.join(str(n) for n in range(60))} * * * *"
    assert make_rule(cron=long).next_after(0) == 60_000_000


@pytest.mark.parametrize("cron", [5, b"* * * * *", ["*"] * 5])
def test_an_expression_is_text(cron):
    with pytest.raises(ConfigError, match=r"cron must be text such as '30 2 \* \* \*', not"):
        make_rule(cron=cron)


@given(st.text("0159*/,-L#W? MONJULsat\t@", max_size=30))
@settings(max_examples=SIZE.examples * 4, deadline=None)
@pytest.mark.timeout(600)
def test_any_text_is_a_rule_or_a_config_error(cron: str):
    try:
        rule = make_rule(cron=cron)
    except ConfigError:
        return
    assert rule.next_after(0) is not None
    assert rule.words()


_item = st.sampled_from(["*", "1", "2-4", "*/3", "3/2", "1-5/2"])
_days = st.sampled_from(["L", "LW", "1", "*", "2-9/3", "*/10"])
_names = st.sampled_from(["MON", "5L", "FRI#2", "*", "1-5", "SUN", "7", "TUE-THU", "*/2"])


@given(
    *(st.lists(_item, min_size=1, max_size=3) for _ in range(4)),
    st.lists(_days, min_size=1, max_size=2),
    st.lists(_names, min_size=1, max_size=2),
    st.booleans(),
)
@settings(max_examples=SIZE.examples, deadline=None)
def test_whatever_is_allowed_works(second, minute, hour, month, dom, dow, six: bool):
    fields = [",".join(each) for each in (second, minute, hour, dom, month, dow)]
    rule = Cron(" ".join(fields if six else fields[1:]), "Europe/Berlin")
    now = at("2026-01-01")
    tick = rule.next_after(now)
    assert tick > now
    assert rule.last_at(tick) == tick
    assert rule.words().endswith(", Europe/Berlin")
