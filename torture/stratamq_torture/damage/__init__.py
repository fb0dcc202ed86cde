"""Damage to the files of a stopped store: it starts or refuses, and never serves wrong bytes."""
