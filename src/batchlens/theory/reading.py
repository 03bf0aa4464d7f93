"""Problems from files: a spectrum of one's own, or what was measured of a network."""

import os

from batchlens._checks import require_path
from batchlens.errors import BatchlensError
from batchlens.theory._problem_files import parse_problem
from batchlens.theory.problem import NoisyQuadratic

__all__ = ["read_problem"]


def read_problem(path: str | os.PathLike[str]) -> NoisyQuadratic:
    """The noisy quadratic that a file holds: a spectrum as CSV, or what was measured of a network.

    A CSV file names its columns in the first line: curvature, and if there are any noise (equal to curvature by
    default), initial and count (1 by default). A JSON file is what `batchlens measure` wrote, or has those columns as
    lists, at the top or below "problem". Of a measurement the last moment that has a spectrum counts: its curvatures
    and gradient variances, with the top curvature, which the spectrum's basis sees too small, in place of its largest;
    and all coordinates start alike, so that the initial risk is the loss of that moment.

    Arguments:
        path: of the file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = f"{folder}/spectrum.csv"
    ...     with open(path, "w") as file:
    ...         _ = file.write("curvature,count\\n1,1\\n0.1,50\\n")
    ...     read_problem(path)
    <NoisyQuadratic: 51 coordinates in 2 bins, curvature 1 to 0.1, trace 6, initial risk 3>
    """
    source = require_path("path", path)
    try:
        return parse_problem(str(source), source.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise BatchlensError(f"{source} cannot be read: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise BatchlensError(f"{source} must be UTF-8 text.") from None
