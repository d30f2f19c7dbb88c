"""Line-API widgets: they are given lines and repaint the cells that differ."""
