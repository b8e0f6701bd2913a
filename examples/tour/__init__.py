"""The parts of the tour: `fleet` starts the replicas, `replica` is one, `screen` draws."""
