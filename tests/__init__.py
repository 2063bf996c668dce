"""Tests of dpexec. A package, as is the room whose fixtures end with it."""
