"""What counts as perfect, as flat, as nothing: the thresholds of all claims, each with those that use it."""

# Regimes
PERFECT, FLAT = -0.9, -0.2  # log-log slopes of steps: two regimes; the latter also of learning rates
ALIKE = 2.0  # factor between critical batch sizes: initial variance

# Steps saved, as a share
NO_BENEFIT = 0.05  # momentum, averaging and schedules at small batches
NOTHING = 0.02  # averaging and schedules at large batches

# Momentum
FEW_CELLS = 0.25  # share of the cells in which momentum may exceed its bound for the claim to hold with a limit
ROUNDING = 1e-9  # how far momentum may exceed its bound and count as at it
SAME_MOTION = 0.02  # difference of first terms: momentum like SGD
LATER = 100  # steps from which on momentum is compared again: momentum like SGD

# Averaging
SAME_RATE = 1e-12  # difference of convergence rates: averaging keeps the rate

# Learning rates and schedules
LINEAR = (0.9, 1.1)  # log-log slope: optimal and final learning rates
CLOSE = 0.1  # relative difference: effective learning rates, risks with and without the cap
NEAR_BOUND = 2.0  # times the bound: schedules at small batches
FULL = 0.99  # share of the largest stable rate: where a schedule starts
DECAYED = 0.98  # share of the largest stable rate below which a schedule has begun to decay
ENOUGH_PIECES = 5  # decaying pieces from which on a schedule has a shape
STRAIGHT = 0.85  # R^2 of log learning rate over time: decay
