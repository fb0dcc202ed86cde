"""Where commands look for a broker when nobody says."""

DEFAULT_DATA = "stratamq-data"
DATA_VARIABLE = "STRATAMQ_DATA"
ADDRESS_VARIABLE = "STRATAMQ_ADDRESS"
