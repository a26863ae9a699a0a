"""Answers to questions, one module for each, from the tables of a warehouse. :mod:`answers.warehouse` opens it."""
