"""The noisy quadratic model: exact risk, steps to a target, and bounds."""
