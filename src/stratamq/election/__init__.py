"""Election stores: one value with compare and swap, for the agents of a cluster's members."""
