"""Audits: queries for bad rows in the tables, counted by DataFusion, the SQL engine inside deltalake."""
