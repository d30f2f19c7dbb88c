"""Running a Harbor job under watch: its file, what is checked before, and the start of its engine."""
