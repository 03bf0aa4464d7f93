"""What disks, networks and cut cables do to a file."""

from random import Random


def damage(content: bytes, random: Random) -> bytes:
    """The content with bits flipped, cut short, partly zeroed, overwritten, or with a part missing; never the same."""
    while True:
        kind = random.choice([_flip, _flip_many, _cut, _zero, _overwrite, _drop, _empty])
        damaged = kind(content, random)
        if damaged != content:
            return damaged


def _flip(content: bytes, random: Random, bits: int = 1) -> bytes:
    changed = bytearray(content)
    for _ in range(bits):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _flip_many(content: bytes, random: Random) -> bytes:
    return _flip(content, random, random.choice([2, 10, 100]))


def _cut(content: bytes, random: Random) -> bytes:
    return content[: random.randrange(len(content))]


def _zero(content: bytes, random: Random) -> bytes:
    start, stop = _block(content, random)
    return content[:start] + bytes(stop - start) + content[stop:]


def _overwrite(content: bytes, random: Random) -> bytes:
    start, stop = _block(content, random)
    return content[:start] + random.randbytes(stop - start) + content[stop:]


def _drop(content: bytes, random: Random) -> bytes:
    start, stop = _block(content, random)
    return content[:start] + content[stop:]


def _empty(content: bytes, random: Random) -> bytes:
    return b""


def _block(content: bytes, random: Random) -> tuple[int, int]:
    start = random.randrange(len(content))
    return start, min(start + random.choice([1, 16, 512, 4096]), len(content))
