"""Tuning: settings of strategies, forecasts of their savings, and short runs that measure them."""
