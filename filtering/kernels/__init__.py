"""The loops over messages, compiled by Numba.

``compile`` has the decorator. ``registers`` has bits, ``text_loops`` texts, and ``number_loops`` texts as numbers.
"""
