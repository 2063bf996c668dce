"""Tests on clusters. A package, so that its clusters end with it, not with all tests."""
