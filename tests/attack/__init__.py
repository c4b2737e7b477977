"""Attacks by those who may submit jobs, as tests. Each module says what it needs."""
