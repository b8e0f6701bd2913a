"""What Tenure tells about itself: events for programs, log lines for people."""

from tenure.observe.events import (
    Event,
    HoldLost,
    LimitsDiffer,
    RenewalFailing,
    RenewalRestored,
)

__all__ = ["Event", "HoldLost", "LimitsDiffer", "RenewalFailing", "RenewalRestored"]
