"""Reads the broker's own files: its log, its consume queues with their extension, and its configuration.

From bytes to columns of the log: ``segments`` (files by physical offset) → ``commitlog_walk`` (records, and the damage
between them; ``record_layout`` knows one record) → ``properties``. The rows of commitlog are made from these in
:mod:`schemas.messages.commitlog_rows`. ``message_decoder`` gives other readers the same fields as Arrow columns.
``recovery`` says where a log ends.
"""
