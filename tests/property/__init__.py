"""Random programs: the device against CPU torch, after every step."""
