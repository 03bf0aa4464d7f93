"""Compiled kernels: all the code that numba turns into machine code, and nothing else."""
