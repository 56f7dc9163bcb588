"""`dlc reduce`: a smaller file for which a command still succeeds."""


def command() -> None:
    """Placeholder."""
