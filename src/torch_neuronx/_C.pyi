from typing import Any

def __getattr__(name: str) -> Any: ...  # each stratum adds its functions in csrc/*/python.cpp, with their doc strings
