"""The slow half of eager mode: binding the table, resolving new keys, running on the CPU."""
