"""Errors that a user can fix."""


class UsageError(Exception):
    """A command line, file or folder that the user gave is not usable. The message says what to do."""


class WarehouseUnusable(UsageError):
    """Tables cannot be written to a folder or catalog. The message says what to give instead."""


class WarehouseBusy(Exception):
    """Another run is writing to this warehouse."""
