"""`tenure timers`: list, explain, pause and trigger timers and schedules."""
