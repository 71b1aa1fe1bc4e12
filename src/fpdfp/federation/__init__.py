"""A federation across organisations: sites answer questions about their tables, and no row leaves its site."""
