"""Automatic mutants: change one thing in `src/tenure`, and see whether a test fails.

`python -m tests.mutation` (or `make mutate`) draws a seeded sample of all small changes that the
operators can make, runs the tests that reach each change, and
lists the survivors. docs/proof.md explains how to read the result.

| module | what it does |
|---|---|
| `mutant.py` | one change: its text, its place, its id |
| `python.py`, `python_*.py` | the changes of Python |
| `lua.py`, `sql.py` | the changes of Lua and SQL; `tokens.py` splits both into words |
| `sample.py` | all mutants of the source, filters, and the draw by a seed |
| `equivalents.py` | changes that no test can see, with the reason (`equivalents.txt`) |
| `probes.py` | a copy of the source that records which statement ran |
| `reach.py` | which test reaches which statement, kept under `.cache/mutation` |
| `session.py` | a run of pytest in a forked process, against one copy of the source |
| `workbench.py`, `servers.py` | one worker: its copy of the source, its servers, its sessions |
| `pool.py` | the workers |
| `trial.py` | one mutant: is it valid, which tests run, is it caught |
| `run.py` | a whole run: measure the tests, try the mutants |
| `verdicts.py` | the results: lines of JSON, the table, the list of survivors |
"""
