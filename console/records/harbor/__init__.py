"""Reading of Harbor job directories."""
