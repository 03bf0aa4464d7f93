"""The update of a coordinate: what tells one rule from another."""


def rate_limit(momentum: float, nesterov: bool) -> float:
    """The learning_rate * h^(1 - power) from which on a coordinate is unstable."""
    limit = 2.0 * (1.0 + momentum)
    return limit / (1.0 + 2.0 * momentum) if nesterov else limit
