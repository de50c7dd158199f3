"""The inter-operator level: parser, printer, view, verifier and interpreter of programs on SDFGs."""

from dacergnn.program.interpret import interpret
from dacergnn.program.parser import parse
from dacergnn.program.printer import print_plans, print_program
from dacergnn.program.verify import verify
from dacergnn.program.view import Program

__all__ = ["Program", "interpret", "parse", "print_plans", "print_program", "verify"]
