"""``python -m kvcanary``."""

from kvcanary.cli import main

if __name__ == "__main__":
    main()
