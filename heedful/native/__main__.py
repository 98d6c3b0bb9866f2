"""`python -m heedful.native` compiles the engine in place, in a checkout."""

import sys

from heedful.native.build import compile_engine, in_place

if __name__ == "__main__":
    sys.exit(compile_engine(in_place()))
