"""Example programs: small nets on real data, written as fluid programs are."""
