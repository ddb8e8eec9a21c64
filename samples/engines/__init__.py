"""A compiled program with a device profile: what the engines did inside its executions."""
