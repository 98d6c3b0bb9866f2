"""`python3 -m heedful` is the program `heedful`, also from a checkout that was never installed."""

from heedful.cli import main

if __name__ == "__main__":
    main()
