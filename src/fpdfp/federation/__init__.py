"""A federation across organisations: sites dial out to one hub over mutual TLS, and answer as their policy allows."""
