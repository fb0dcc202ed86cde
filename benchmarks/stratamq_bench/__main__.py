"""`python -m stratamq_bench …` is `stratamq bench …`; without arguments `stratamq bench all`."""

import sys

from stratamq.cli.__main__ import main

if __name__ == "__main__":
    main(["bench", *(sys.argv[1:] or ["all"])])
