"""Curvature and gradient noise of a real network: what it assumes of itself when a noisy quadratic stands for it.

Notation: theta is all trainable parameters as one vector, l_n the loss of example n of N, L its mean, g_n the gradient
of l_n and g that of L; z_n are the outputs and J_n their Jacobian.

    Gauss-Newton   F = 1/N sum_n J_n^T (d^2 l_n / dz^2) J_n      the Fisher matrix, for the losses that K-FAC knows
    Hessian        H = d^2 L / dtheta^2
    covariance     C = 1/(N - 1) sum_n (g_n - g)(g_n - g)^T

* `objective`: the loss as a function of theta, chunk by chunk; `products`: F v, H v, C v and what they are made of.
* `lanczos`: top eigenvalues with a residual bound, and the density; `traces`: tr F and tr C with standard errors.
* `kronecker`: v^T F v and v^T C v in every direction v of a Kronecker eigenbasis, exactly.
* `measuring`: all of it for one set of weights; `tracking`, with `measured_run`: along a run. All need torch.
* `measurement`: what is kept, with `spectra` and `noise`: no torch.
"""
