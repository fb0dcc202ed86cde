"""Where commands look for a broker without an option."""

DEFAULT_DATA = "stratamq-data"
DATA_VARIABLE = "STRATAMQ_DATA"
ADDRESS_VARIABLE = "STRATAMQ_ADDRESS"
