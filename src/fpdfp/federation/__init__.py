"""A federation across organisations: sites answer questions about their tables, and models are fitted without moving rows."""
