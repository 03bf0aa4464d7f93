"""What the paper says about the noisy quadratic model, statement by statement, each put to the test.

A check is a function of numbers alone, so that it can be fed numbers on which it fails; `evidence` feeds them those of
a study.  "Holds with a limit" is the verdict where a statement is true in part, and the note says of which.
"""
