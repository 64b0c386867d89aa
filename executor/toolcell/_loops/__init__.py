"""Any event loop: where an executor lives, and how others have work done there."""
