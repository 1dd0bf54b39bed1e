"""What knows nothing of statistics: exact sums, positive definite systems, line searches, threads, memory, compiling, digits."""
