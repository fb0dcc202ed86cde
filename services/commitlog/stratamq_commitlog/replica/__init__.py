"""The log among others: followers, slaves, members, roles, cuts."""
