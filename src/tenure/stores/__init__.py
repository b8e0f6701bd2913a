"""Where leases live: `contract` is the promise, `memory` its executable specification."""
