"""Seeing what ranks do: messages and memory."""
