"""The tables of a warehouse and the formats of files, and the version of mqsieve that writes them.

The version is in the code because Spark can send the code without an installed package.
"""

VERSION = "0.3.0.dev0"
IS_PACKAGE = __name__.startswith("mqsieve.")
"""Whether this is the code of a wheel, where all is below ``mqsieve``, and not a repository (conf/build_backend.py)."""
