"""What programs and notebooks use of mqsieve. Each name is imported when it is first asked for; nothing starts Spark.

    import mqsieve

    shop = mqsieve.open("/data/mqsieve")
    shop.why("ord-370", "cg_expensive_orders")
    shop.deliveries.of(group="cg_expensive_orders").to_pandas()

    mqsieve.compile("price > 50.0").evaluate({"price": "60"})
    mqsieve.match(batch, ["price > 50.0", "region = 'hangzhou'"]).pairs()

Functions for a Spark session are in :mod:`mqsieve.spark`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from answers.warehouse import OpenWarehouse, open
    from filtering.matcher import Matches, match
    from filtering.sql92 import CompiledExpression, EvaluationError, InvalidExpression, compile
    from schemas.errors import UsageError

    __version__: str

__all__ = [
    "CompiledExpression", "EvaluationError", "InvalidExpression", "Matches", "OpenWarehouse", "UsageError", "compile",
    "match", "open",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    module: Any
    if name in ("OpenWarehouse", "open"):
        from answers import warehouse as module
    elif name in ("Matches", "match"):
        from filtering import matcher as module
    elif name in ("CompiledExpression", "EvaluationError", "InvalidExpression", "compile"):
        from filtering import sql92 as module
    elif name == "UsageError":
        from schemas import errors as module
    elif name == "__version__":
        from schemas import VERSION

        return VERSION
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(module, name)


def __dir__() -> list[str]:
    return __all__
