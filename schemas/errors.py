"""Errors that a user can mend."""


class UsageError(Exception):
    """Something that the user gave, a command line, a file, or a folder, is not usable. The message says what to do."""


class WarehouseUnusable(UsageError):
    """No tables can be written there; the message says what to give instead."""


class WarehouseBusy(Exception):
    """Another run is writing to this warehouse."""
