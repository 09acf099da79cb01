#!/bin/bash
# The instances of bench/curves.txt at small sizes, as matrix.sh prints its own: what is measured there has to be right.
python3 "$(dirname "$0")/../../bench/curves.py" small
