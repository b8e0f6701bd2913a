"""What Tenure tells about itself: events for programs, log lines for people."""
