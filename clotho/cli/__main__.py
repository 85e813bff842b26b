"""`python -m clotho.cli`: the command line, by the interpreter that runs it."""

from clotho.cli import main

main()
