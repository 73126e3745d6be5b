"""Locality-sensitive hashing attention (Kitaev et al. 2020)."""
