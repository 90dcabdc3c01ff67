"""What developers of Headrace run beside it: the real services, from their released files. Never installed with the package."""
