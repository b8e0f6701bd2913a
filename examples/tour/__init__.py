"""The parts of the tour.

`service` starts the example service, and `visiting`, `outliving` and `chiming` are the acts on it;
`fleet` starts replicas that take orders, `replica` is one, and `locking` has the acts on them.
`processes` is what both kinds share, `tied` ends them with the tour; `screen` draws, `verdict`
judges.
"""
