"""``python -m dataloader_svc``."""

import sys

from dataloader_svc.app import main

if __name__ == "__main__":
    sys.exit(main())
