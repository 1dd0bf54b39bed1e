"""The dual, its shift, the rules of dual points, and certificates: what is proved."""
