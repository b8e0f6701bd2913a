"""Gates inside the functions of the PostgreSQL store: a schedule can stop between statements.

The functions are read from the database and written back with a gate before each of their
statements. A session at a gate waits for an advisory lock that the schedule holds.
"""

import re
from collections.abc import Iterator

import asyncpg

CLASS = 77  # class of the advisory locks, used with a session's number or one of those below
OPEN = 0
COARSE = 1

_GATE = f"""
CREATE OR REPLACE FUNCTION tenure.gate(_is_end boolean) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    _session text := current_setting('schedules.session', true);
BEGIN
    IF coalesce(_session, '') = '' OR pg_try_advisory_lock_shared({CLASS}, {OPEN}) THEN
        PERFORM pg_advisory_unlock_shared({CLASS}, {OPEN}) WHERE coalesce(_session, '') <> '';
        RETURN true;
    END IF;
    IF NOT _is_end AND pg_try_advisory_lock_shared({CLASS}, {COARSE}) THEN
        PERFORM pg_advisory_unlock_shared({CLASS}, {COARSE});
        RETURN true;
    END IF;
    -- The schedule lets go of it, and queues up for it again at once.
    PERFORM pg_advisory_lock({CLASS}, _session::integer);
    PERFORM pg_advisory_unlock({CLASS}, _session::integer);
    RETURN true;
END
$$;
"""
_FUNCTIONS = """
SELECT pg_get_functiondef(p.oid), p.proconfig IS NOT NULL AS is_outer
FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
WHERE p.pronamespace = 'tenure'::regnamespace AND l.lanname = 'plpgsql' AND p.proname <> 'gate'
"""

_BEFORE = re.compile(r"(;|\b(BEGIN|LOOP|THEN|ELSE))$")
_STATEMENT = re.compile(
    r"(SELECT|PERFORM|INSERT|UPDATE|DELETE|WITH|FOR|FOREACH|RETURN (QUERY|ARRAY|coalesce))\b"
)
_WITH_A_QUERY = re.compile(r"(\w|\.)+ := .*(tenure\.|ARRAY\(|SELECT)|(IF|ELSIF) .*(EXISTS|ARRAY\()")
_RETURN = re.compile(r"RETURN( \w+)?;")


async def put_in(connection: asyncpg.Connection) -> int:
    """Put gates into all functions of this database; return how many."""
    await connection.execute(_GATE)
    gates = 0
    for definition, is_outer in await connection.fetch(_FUNCTIONS):
        # A call that a schedule holds up takes longer than it ever would otherwise.
        patient = re.sub(r"SET lock_timeout TO '\d+'", "SET lock_timeout TO '20000'", definition)
        lines = list(_gated(patient.splitlines(), is_outer=is_outer))
        gates += sum("tenure.gate(" in line for line in lines)
        await connection.execute("\n".join(lines))
    return gates


def _gated(lines: list[str], *, is_outer: bool) -> Iterator[str]:
    """Put a gate before each statement, and before the end of what is a transaction of its own.

    As a condition: PERFORM would change FOUND, by which the next line may go.
    """
    last_end = max(n for n, line in enumerate(lines) if line.strip() in ("END", "END;"))
    before = ""
    is_body = False
    for number, line in enumerate(lines):
        code = line.strip()
        if not code or code.startswith("--"):
            yield line
            continue
        starts = is_body and _BEFORE.search(before) is not None
        if is_outer and ((starts and _RETURN.match(code)) or number == last_end):
            yield "IF tenure.gate(true) THEN NULL; END IF;"
        elif starts and (_STATEMENT.match(code) or _WITH_A_QUERY.match(code)):
            yield "IF tenure.gate(false) THEN NULL; END IF;"
        is_body = is_body or code == "BEGIN"
        before = code.partition(" --")[0].strip()
        yield line
