"""One module, one Delta table; the formats that tables are read from and written to lie beside them."""
