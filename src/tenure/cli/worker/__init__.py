"""`tenure worker` and `tenure ping`: run the jobs of an app, and ask a worker how it is."""
