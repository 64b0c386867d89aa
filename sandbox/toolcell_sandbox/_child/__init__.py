"""What runs between the supervisor and a handler. Standard library only."""
