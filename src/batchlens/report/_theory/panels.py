"""The report's figures, one entry each: which numbers, how they are drawn, what to see in them."""

from functools import partial

from batchlens.report._page.records import PanelPlan
from batchlens.report._theory.figures import batches, coordinates, critical, rates, steps
from batchlens.report._theory.study import Study

PANELS: tuple[PanelPlan[Study], ...] = (
    PanelPlan(
        "1",
        "Risk of single coordinates over time",
        "figure 1",
        "The smallest batch. A constant rate (dashed) is a compromise: stiff coordinates wait at their steady state, "
        "flat ones are still on their way. Decay (solid) serves one after the other: large steps for the flat ones "
        "first, at the price of noise that drives the stiff ones up, and small steps against that noise last.",
        "coordinates",
        coordinates.coordinate_data,
        coordinates.draw_coordinates,
    ),
    PanelPlan(
        "2a",
        "Convergence rate against momentum",
        "figure 2",
        "One coordinate, alpha h = 0.0005. Until momentum gets within a few percent of 1, it converges like SGD at the "
        "effective learning rate alpha / (1 - momentum); where the two roots become complex, more momentum only slows. "
        "SGD's line turns where its rate passes 1 / h and ends where it would diverge.",
        "momentum",
        lambda _: coordinates.momentum_data(),
        coordinates.draw_momentum_rate,
    ),
    PanelPlan(
        "2b",
        "Steady-state risk against momentum",
        "figure 2",
        "The same coordinate at batch size 1: momentum raises the steady-state risk by 1 / (1 - momentum), just as a "
        "larger learning rate would; SGD's line ends where that rate would diverge.",
        "momentum",
        lambda _: coordinates.momentum_data(),
        coordinates.draw_momentum_steady_state,
    ),
    PanelPlan(
        "3a",
        "Momentum and preconditioning",
        "figure 3a",
        "Fewest steps to the target, everything tuned at every point. Momentum (solid) and SGD (dashed) part where SGD "
        "meets its stability limit; stronger preconditioning moves that point to larger batches and saves steps "
        "everywhere. No learner that starts where training does can beat the Bayes bound; the paper's, of maximum "
        "likelihood, ignores the start.",
        "steps",
        steps.tuned_steps_data,
        steps.draw_tuned_steps,
    ),
    PanelPlan(
        "3b",
        "Constant learning rate against optimal schedule",
        "figure 3b",
        "Optimal schedules (solid, 50 pieces, no piece beyond the largest stable constant rate) save most of the steps "
        "at small batches and nothing at large ones, where the cap binds.",
        "schedule-steps",
        steps.schedule_steps_data,
        steps.draw_tuned_steps,
    ),
    PanelPlan(
        "3c",
        "Optimal schedules",
        "figure 3c",
        "Every schedule starts at the largest stable rate; the smaller the batch, the earlier and deeper it decays.",
        "schedules",
        rates.schedule_data,
        rates.draw_schedules,
    ),
    PanelPlan(
        "4",
        "Averaging",
        "figure 4",
        "The average of the iterates (solid) needs a fraction of SGD's steps (dashed) while noise dominates, the "
        "smallest without preconditioning, and just as many once the batch is large.",
        "averaging",
        partial(steps.tuned_steps_data, families=("sgd+ema", "sgd")),
        steps.draw_tuned_steps,
    ),
    PanelPlan(
        "5a",
        "Optimal learning rate without momentum",
        "appendix E",
        "Proportional to the batch size until it meets the stability limit; stronger preconditioning asks for smaller "
        "rates and meets the limit later.",
        "learning-rates",
        rates.tuned_rates_data,
        partial(rates.draw_tuned_rates, kind="none"),
    ),
    PanelPlan(
        "5b",
        "Optimal learning rate at momentum 0.9",
        "appendix E",
        "The effective rate alpha / (1 - momentum) against SGD's learning rate (dashed): the same at small batches; "
        "larger where SGD meets its limit and training is long enough for momentum to build up.",
        "learning-rates",
        rates.tuned_rates_data,
        partial(rates.draw_tuned_rates, kind="0.9"),
    ),
    PanelPlan(
        "5c",
        "Optimal learning rate with tuned momentum",
        "appendix E",
        "With momentum tuned as well the effective rate stays proportional to the batch size longer still.",
        "learning-rates",
        rates.tuned_rates_data,
        partial(rates.draw_tuned_rates, kind="tuned"),
    ),
    PanelPlan(
        "6",
        "Final learning rate of the optimal schedule",
        "appendix E",
        "Proportional to the batch size (dashed), as the best constant rate is, until the largest stable rate.",
        "final-rates",
        rates.final_rate_data,
        rates.draw_final_rates,
    ),
    PanelPlan(
        "7",
        "Steps for different targets",
        "appendix E",
        "Tuned SGD. Harder targets need more steps and scale perfectly to larger batches.",
        "targets",
        steps.target_data,
        steps.draw_targets,
    ),
    PanelPlan(
        "8",
        "First term of theorem 1 against SGD at the effective rate",
        "appendix E",
        "alpha h = 0.0005: what is left of the starting point after the steps named beside each line. Moderate "
        "momentum (solid, right) and SGD at the effective rate (dashed) are hard to tell apart; momentum close to 1 "
        "(left) lags and swings.",
        "first-term",
        lambda _: coordinates.first_term_data(),
        coordinates.draw_first_term,
    ),
    PanelPlan(
        "9a",
        "Everything together",
        "",
        "Power 0: what averaging and schedules add to SGD and to momentum, beside the bounds.",
        "combinations",
        steps.combination_data,
        steps.draw_combinations,
    ),
    PanelPlan(
        "9b",
        "How much of the way to the bound",
        "",
        "The same choices: log(SGD's steps / steps) over log(SGD's steps / Bayes bound), so that 0 is tuned SGD and 1 "
        "is what no learner can beat.",
        "combinations",
        steps.combination_data,
        steps.draw_closed,
    ),
    *(
        PanelPlan(
            f"10{letter}",
            f"Critical batch size by {definition}",
            "",
            caption,
            "critical",
            critical.critical_data,
            partial(critical.draw_critical, definition=definition),
        )
        for letter, definition, caption in (
            ("a", "knee", "Where the line of perfect scaling and the plateau meet. Hollow markers are bounds."),
            ("b", "overhead", "The largest batch whose steps exceed perfect scaling by at most 20%."),
            ("c", "fit", "B_crit of the least-squares fit steps = S_min (1 + B_crit / B)."),
            ("d", "bend", "The same with the sharpness fitted too: steps = S_min (1 + (B_crit / B)^a)^(1/a)."),
        )
    ),
    PanelPlan(
        "11",
        "Batches that grow",
        "",
        "At the examples that the optimal schedule of one batch size uses (dashed), batch sizes and learning rates "
        "optimised together (solid, 50 pieces each) need fewer steps: many fewer at small batches, where the learning "
        "rate stays high and the batch grows in place of its decay; none at large ones, where no noise is left.",
        "batch-ramps",
        batches.batch_ramp_data,
        batches.draw_batch_ramps,
    ),
)
