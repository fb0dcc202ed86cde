"""A store directory made from a tier: a broker whose disk is empty goes on from what is there."""
