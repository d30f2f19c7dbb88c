"""What `harbor job resume` would do with a job directory, told without touching it."""
