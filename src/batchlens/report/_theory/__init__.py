"""The report on the theory: what it computes, what it claims, what it draws."""
