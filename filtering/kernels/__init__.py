"""The loops over messages, compiled by Numba."""
