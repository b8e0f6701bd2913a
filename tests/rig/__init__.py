"""What the tests stand on: real servers, a faulty network, and child processes."""
