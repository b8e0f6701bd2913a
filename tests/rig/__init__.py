"""The test rig: real servers, a faulty network, and child processes."""
