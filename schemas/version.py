"""The version of mqsieve. It is in the code because Spark can send the code without an installed package."""

VERSION = "0.2.0"
