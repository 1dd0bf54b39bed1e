"""Which supports are allowed: at most k features, some kept, groups, signs; and the relaxation of each."""
