"""Times and money in words."""

from collections.abc import Sequence

_UNITS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0))


def time_unit(seconds: Sequence[float]) -> tuple[str, float]:
    """The largest unit that the least of some times fills, and its seconds; days from two on.

    >>> time_unit([90.0, 7200.0])
    ('min', 60.0)
    """
    least = min(seconds)
    return next((unit for unit in _UNITS if least >= (2 if unit[0] == "d" else 1) * unit[1]), _UNITS[-1])


def in_time(seconds: float) -> str:
    """A duration in the unit that suits it.

    >>> in_time(52.5), in_time(5400), in_time(864000)
    ('52.5 s', '1.5 h', '10 d')
    """
    name, length = time_unit([seconds])
    amount = seconds / length
    return f"{amount:,.0f} {name}" if amount >= 1000 else f"{amount:.3g} {name}"


def money(cost: float, price: float | None) -> str:
    """A cost, in device-hours where there is no price.

    >>> money(12.5, 2.0), money(3.0, None)
    ('12.5', '3 device-hours')
    """
    amount = f"{cost:,.0f}" if cost >= 1000 else f"{cost:.3g}"
    return amount if price is not None else f"{amount} device-hours"


def count_in_words(value: float) -> str:
    """A count as an axis shows it.

    >>> count_in_words(15_000_000), count_in_words(20_000), count_in_words(0.5)
    ('15M', '20k', '0.5')
    """
    for name, size, least in (("G", 1e9, 1e9), ("M", 1e6, 1e6), ("k", 1e3, 1e4)):
        if value >= least:
            return f"{value / size:.6g}{name}"
    return f"{value:,.6g}"
