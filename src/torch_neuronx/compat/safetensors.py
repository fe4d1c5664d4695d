def apply() -> None:
    pass
