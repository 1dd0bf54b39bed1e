"""The relaxed problem, solved from sums and small matrices."""
