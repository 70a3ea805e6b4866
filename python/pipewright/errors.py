"""What goes wrong, by whose fault it is. Infeasible, deadlocked and invalid orders are results, never exceptions."""


class Error(Exception):
    """Root of everything that Pipewright raises on purpose."""


class InputError(Error, ValueError):
    """The input is at fault. The message says where, what was expected, and what to do."""

    def __init__(self, text: str, file: str = "", pointer: str = "", message: str = "") -> None:
        super().__init__(text)
        #: The file, or the name that a text was given; "" where there is none.
        self.file = file
        #: Where in it: a JSON pointer ("/stages/1/layers"), or a line, row and cell; may be "".
        self.pointer = pointer
        #: The sentence without its place.
        self.message = message or text


class MachineError(Error, RuntimeError):
    """This machine cannot do what was asked: a file cannot be written, something is missing."""


class InternalError(Error, RuntimeError):
    """Our own mistake; please report it with its input."""
