"""Tests of dpexec; a package, because its folder ``distributed`` is one, for package fixtures."""
