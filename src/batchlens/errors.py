"""What batchlens raises when a file or a stored state is bad."""


class BatchlensError(Exception):
    """A file that cannot be read as what it should be, or a state that does not fit what was asked.

    Bad arguments raise ValueError or TypeError instead.

    >>> import batchlens as bl
    >>> try:
    ...     bl.read_sweep("nothing.sqlite")
    ... except bl.BatchlensError as error:
    ...     print(error)
    nothing.sqlite is not a file.
    """


class MissingExtra(BatchlensError, ImportError):
    """An optional dependency that is not installed; the message says what to install."""
