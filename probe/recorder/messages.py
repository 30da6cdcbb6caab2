# ---------------------------------------------------------------------------------------------------------------------
# Talking to whoever started this


class Refusal(Exception):
    """What cannot be traced, and what to do."""

    def __init__(self, problem, hint):
        super().__init__(problem)
        self.problem, self.hint = problem, hint


class Channel:
    """Lines of JSON to whoever started this. What the model prints goes to standard error."""

    def __init__(self, descriptor):
        self.file = os.fdopen(descriptor, "w", encoding="utf-8")

    def send(self, **fields):
        self.file.write(json.dumps(fields, separators=(",", ":")) + "\n")
        self.file.flush()
