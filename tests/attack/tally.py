"""What an attack has tried, and what broke."""

from collections import Counter


class Tally:
    """Attempts and failures, by kind."""

    def __init__(self) -> None:
        self.attempts = Counter[str]()
        self.failures: list[tuple[str, str]] = []

    def count(self, kind: str, problem: str = "") -> None:
        """One attempt; `problem` says what broke, if anything did."""
        self.attempts[kind] += 1
        if problem:
            self.failures.append((kind, problem))

    def table(self) -> str:
        """Attempts and failures by kind, then every failure."""
        failed = Counter(kind for kind, _ in self.failures)
        rows = [(kind, str(count), str(failed[kind])) for kind, count in self.attempts.items()]
        rows = [("kind", "attempts", "failures"), *rows]
        rows.append(("all", str(self.attempts.total()), str(len(self.failures))))
        width = max(len(kind) for kind, _, _ in rows)
        lines = [f"{kind:<{width}}  {attempts:>8}  {failures:>8}" for kind, attempts, failures in rows]
        return "\n".join([*lines, *(f"{kind}: {problem}" for kind, problem in self.failures)])
