"""Running executables: the protocol, and its implementation on jaxlib."""
