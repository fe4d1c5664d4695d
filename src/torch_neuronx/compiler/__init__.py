"""From StableHLO to executables, in memory and on disk."""
