"""The parts of the tour.

`service` starts the example service; `http_steps`, `recovery_step` and `timer_step` use it. `fleet`
starts replicas that take orders; `replica` is such a process, and `lock_steps` gives the orders.
`processes` is shared by `service` and `fleet`, and `tied` ends a process with the tour. `screen`
prints, `verdict` collects the results.
"""
