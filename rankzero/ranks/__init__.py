"""Real ranks: start them in milliseconds, run functions on them, explain what goes wrong."""
