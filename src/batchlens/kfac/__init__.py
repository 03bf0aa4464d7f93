"""K-FAC: natural-gradient steps with a Kronecker-factored Fisher matrix, for any training loop.

* `layers`: which layers are understood, and the two factors of each, with their normalisation.
* `labels`: the output gradients whose second moment is the Fisher matrix of the loss.
* `graph`: the calls of layers behind a model's outputs, and whether they account for all that the graph says.
* `observing`: from outputs to means, with `moments` (sums until the step), `thinning` (which examples count) and
  `processes` (several that train one model).
* `inverses`: of damped factors, in full or of low rank; `intervals`: when they are renewed.
* `optimizer`: `KFAC`, from factors to steps, with `groups` of parameters, `saved` states and the summary's `table`.

Martens and Grosse 2015 (arXiv:1503.05671); convolutions: Grosse and Martens 2016 (arXiv:1602.01407);
shared embeddings: appendix A of Zhang et al. 2019 (arXiv:1907.04164), "the paper" from here on.
"""

from batchlens.kfac._optimizer import KFAC, CurvatureError

__all__ = ["KFAC", "CurvatureError"]
