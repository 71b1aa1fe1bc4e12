"""What ``mkdocs.yml`` uses to build the site."""
