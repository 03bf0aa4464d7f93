"""What to do with a curve: settings at another batch size, a plan for hardware and deadline, seconds of a step."""
