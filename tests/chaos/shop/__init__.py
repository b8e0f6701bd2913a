"""The shop of the chaos: a producer, `tenure worker` and a mail server, by default settings."""
