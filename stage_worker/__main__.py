"""``python -m stage_worker``."""

import sys

from stage_worker.app import main

if __name__ == "__main__":
    sys.exit(main())
