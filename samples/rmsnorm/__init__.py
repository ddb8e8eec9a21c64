"""AWS's RMSNorm example, re-created."""
