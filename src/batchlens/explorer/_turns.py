"""Who still waits for an answer: in each tab of a browser the newest question counts."""

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock

# Tabs that are known; beyond, the one that has asked nothing for longest is forgotten.
_MOST_TABS = 100


class Superseded(Exception):
    """A newer question of the same tab has come; nobody waits for the answer to this one."""


class Turns:
    """The newest turn of every tab.

    >>> turns = Turns()
    >>> check = turns.begin("tab", 1)
    >>> check()
    >>> check = turns.begin("tab", 2), check
    >>> check[0]()
    >>> check[1]()
    Traceback (most recent call last):
    ...
    batchlens.explorer._turns.Superseded
    """

    def __init__(self) -> None:
        self._newest: OrderedDict[str, int] = OrderedDict()
        self._lock = Lock()

    def begin(self, tab: str, turn: int) -> Callable[[], None]:
        """Notes a question; what is returned raises `Superseded` once there is a newer one."""
        with self._lock:
            self._newest[tab] = max(turn, self._newest.get(tab, turn))
            self._newest.move_to_end(tab)
            while len(self._newest) > _MOST_TABS:
                self._newest.popitem(last=False)

        def check() -> None:
            if self._newest.get(tab, turn) > turn:
                raise Superseded

        return check
