"""From a lowered call to a loaded executable, through the on-disk cache."""
