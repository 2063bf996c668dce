"""Advice: what to change so that steps become shorter."""
