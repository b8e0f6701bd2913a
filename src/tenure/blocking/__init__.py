"""Tenure for synchronous code: the same objects, in plain `with` blocks.

    app = blocking.Tenure("redis://localhost")
    with app, app.lock("invoice:42") as hold:
        charge(fence=hold.fence)

    with blocking.Tenure(shop.app) as app:
        receipt = app.enqueue(shop.send_mail.request(7)).result(timeout=30)

Everything runs on an event loop of its own in a daemon thread; the calling thread waits. The
calling thread, within its context, owns what it takes: a call that would wait for a lock of its own
raises WouldDeadlock. A block may be left in another thread. A thread cannot be cancelled, so a loss
sets `hold.lost`, `hold.check()` raises, and leaving the block raises.
"""

from tenure.blocking.app import Tenure
from tenure.blocking.jobs import Job, JobPage
from tenure.blocking.locks import Election, Hold, Lock, Semaphore
from tenure.blocking.timers import TimerHandle

__all__ = [
    "Election",
    "Hold",
    "Job",
    "JobPage",
    "Lock",
    "Semaphore",
    "Tenure",
    "TimerHandle",
]
