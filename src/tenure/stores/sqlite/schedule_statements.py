"""The statements about schedules, in the manner of `job_statements`."""

from __future__ import annotations

from tenure.core import soundness as bounds

# The fields of `_Schedule`.
_DOCUMENT = "name, version, declared, last_run, last_job, last_fence, ruler, standing, definition"

# By primary key, in its order.
NAMED = f"""
    SELECT {_DOCUMENT}
    FROM tenure_schedule
    WHERE namespace = :namespace AND name IN (SELECT value FROM json_each(:names))
    ORDER BY name
"""  # noqa: S608 - put together from constants

# By primary key, in its order.
PAGE = f"""
    SELECT {_DOCUMENT}
    FROM tenure_schedule
    WHERE namespace = :namespace AND name > :after
    ORDER BY name
    LIMIT :limit
"""  # noqa: S608 - put together from constants

# By primary key. What was there, perhaps unreadable, is gone.
WRITE = """
    INSERT OR REPLACE INTO tenure_schedule (namespace, name, version, declared, last_run, last_job,
                                            last_fence, ruler, standing, definition)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

# By primary key.
REMOVE = "DELETE FROM tenure_schedule WHERE namespace = :namespace AND name = :name"

# By primary key.
DECLARE = """
    UPDATE tenure_schedule
    SET declared = :wall
    WHERE namespace = :namespace AND name IN (SELECT value FROM json_each(:names))
"""

# The unfinished runs of a schedule. By tenure_live_run, which has all that is asked for.
RUNS = """
    SELECT id
    FROM tenure_live INDEXED BY tenure_live_run
    WHERE namespace = :namespace AND schedule = :name
    LIMIT :limit
"""

# Those on one replica. By tenure_live_run as well, and by tenure_replica_id.
RUNS_ON = """
    SELECT id
    FROM tenure_live INDEXED BY tenure_live_run
    WHERE namespace = :namespace AND schedule = :name
      AND holder = (SELECT number FROM tenure_replica WHERE namespace = :namespace AND id = :on)
    LIMIT :limit
"""

# By primary key, from its end. A line with another number was changed by hand.
LINES = f"""
    SELECT number, "like", first, last, ticks, at, body
    FROM tenure_decision
    WHERE namespace = :namespace AND name = :name
      AND number > 0 AND number < {bounds.INSTANT_MAX} AND typeof(number) = 'integer'
    ORDER BY number DESC LIMIT :limit
"""  # noqa: S608 - put together from constants

# By primary key.
WRITE_LINE = """
    INSERT OR REPLACE INTO tenure_decision (namespace, name, number, "like", first, last, ticks, at,
                                            body)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

# By primary key. All lines, unless there is a number.
REMOVE_LINES = """
    DELETE FROM tenure_decision
    WHERE namespace = :namespace AND name = :name AND number <= ifnull(:number, number)
"""
