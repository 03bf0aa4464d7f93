"""How every parameter is treated, as a table."""

import math
from collections.abc import Iterable, Mapping

from batchlens.kfac._inverses import inverse_entries
from batchlens.kfac._layers import Block


def format_summary(blocks: Iterable[Block], unfactored: Mapping[str, str], rank: int | None) -> str:
    """A line for every layer with factors and for every other parameter, with sizes and memory."""
    lines = [["layer", "treatment", "input factor", "output factor", "memory"]]
    total = 0
    for block in blocks:
        kinds = " + ".join(type(module).__name__ for module in block.modules)
        memory = block.weight.element_size() * sum(
            math.prod(shape) + inverse_entries(shape, rank) for shape in block.factor_shapes
        )
        total += memory
        treatment = f"K-FAC, {kinds}" + (" with bias" if block.bias is not None else "")
        sizes = (f"{shape[0]} {'diagonal' if len(shape) == 1 else 'dense'}" for shape in block.factor_shapes)
        lines.append([" + ".join(block.names), treatment, *sizes, _format_bytes(memory)])
    lines.extend([name, f"gradient only: {reason}", "", "", ""] for name, reason in unfactored.items())
    lines.append(["total", "", "", "", _format_bytes(total)])
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _format_bytes(number: float) -> str:
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} GB"
