"""What makes the documentation: the site and the gallery. No part of the package."""
