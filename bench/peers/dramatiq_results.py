"""Dramatiq on Redis that stores results."""

from __future__ import annotations

from bench.peers import dramatiq

dramatiq.RESULTS = True
producer = dramatiq.producer
work = dramatiq.work
