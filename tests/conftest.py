"""Every test runs in 64-bit scope, as the library's own entry points do.

Compilation is most of the tests' time, so the compiler is asked to think less (the arithmetic is the same), and all
processes share what they compiled, in a folder of this run. What JAX itself holds is dropped when it is much: a process
with some thousands of programs runs out of memory maps.
"""

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import typecheck

gc.disable()  # until all is imported
signal.signal(signal.SIGINT, signal.default_int_handler)  # a runner in the background ignores it, and its children do

if "PYTEST_XDIST_WORKER" not in os.environ:  # the workers are told by it
    os.environ["GPCDE_CACHE_DIR"] = tempfile.mkdtemp(prefix="gpcde-tests-")
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
)
for threads in ("NPROC", "OPENBLAS_NUM_THREADS"):  # a core has a process that tests: more threads wait for each other
    os.environ.setdefault(threads, "1")

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a process that a test starts would compile the package anew
typecheck.install()

# the package is imported where it is needed: the process that hands out the tests waits for none of it

TESTS = count(1)


def share_programs() -> None:
    """Types are checked by a function round each, which does what it did: its programs can be shared."""
    from gpcde.runtime import programs

    plainly = programs._is_named

    def is_named(function: Any) -> bool:
        return plainly(typecheck.unchecked(function))

    programs._is_named = is_named


LONG = {
    "test_bound.py": (
        "a_single_precision_model_has_the_bound_of_its_double_copy[importance]",
        "a_weight_is_how_often_a_row_counts[draws]",
        "a_weight_is_how_often_a_row_counts[importance]",
        "categories_are_their_one_hot_encoding[warp]",
        "derivatives_are_finite_differences_with_q_of_u_held_fixed[free-form, project, identity]",
        "derivatives_are_finite_differences_with_q_of_u_held_fixed[free-form, warp, point, varying]",
        "derivatives_are_finite_differences_with_q_of_u_held_fixed[network draws, warp, gaussian]",
        "derivatives_are_finite_differences_with_q_of_u_held_fixed[network importance, concatenate, point, varying]",
        "derivatives_are_finite_differences_with_q_of_u_held_fixed[none, concatenate, point]",
        "derivatives_are_finite_differences_with_q_of_u_held_fixed[none, project, gaussian]",
        "derivatives_are_finite_differences_with_q_of_u_held_fixed[own closed, project, point, varying]",
        "derivatives_are_finite_differences_with_q_of_u_held_fixed[own draws, project, gaussian]",
        "derivatives_are_finite_differences_with_q_of_u_held_fixed[own full closed, concatenate, gaussian]",
        "derivatives_are_finite_differences_with_q_of_u_held_fixed[own full importance, warp, identity]",
        "derivatives_by_p_are_right_where_its_singular_values_repeat[3]",
        "draws_of_a_x_average_to_the_expectation_over_a[closed]",
        "draws_of_a_x_average_to_the_expectation_over_a[draws]",
        "draws_of_a_x_average_to_the_expectation_over_a[importance]",
        "one_importance_weighted_draw_is_the_elbo_but_for_a_sampled_divergence[False]",
        "separating_the_kernel_changes_neither_bound_nor_derivatives[project]",
        "separating_the_kernel_changes_neither_bound_nor_derivatives[rbf]",
        "separating_the_kernel_changes_neither_bound_nor_derivatives[varying]",
        "the_bounds_of_a_partition_average_to_the_full_one[equal-closed]",
        "the_bounds_of_a_partition_average_to_the_full_one[equal-none]",
        "the_bounds_of_a_partition_average_to_the_full_one[weighted-closed]",
        "the_bounds_of_a_partition_average_to_the_full_one[weighted-none]",
        "the_free_form_bound_is_a_sum_of_log_sums[1-60]",
        "what_free_form_gains_over_a_gaussian_is_the_divergence_between_them[constant]",
    ),
    "test_checkpoint.py": (
        "a_damaged_checkpoint_is_noticed_and_the_one_before_it_serves[altered]",
        "a_damaged_checkpoint_is_noticed_and_the_one_before_it_serves[empty]",
    ),
    "test_cli.py": ("weights_count_as_rows_that_repeat",),
    "test_collection.py": (
        "a_law_integrates_to_one_and_its_samples_follow_it[ring-1]",
        "a_law_integrates_to_one_and_its_samples_follow_it[spiral-1]",
    ),
    "test_companions.py": (
        "a_fit_of_several_parts_that_is_cut_off_goes_on_to_the_same_bits",
        "inputs_and_outputs_of_all_sorts_have_companions_too[P]",
        "inputs_and_outputs_of_all_sorts_have_companions_too[categories]",
        "the_regression_is_one_without_latents",
    ),
    "test_cvae.py": (
        "a_file_holds_the_same_model[two outputs]",
        "every_likelihood_is_the_integral_over_w[categories]",
        "every_likelihood_is_the_integral_over_w[log]",
        "every_likelihood_is_the_integral_over_w[two outputs]",
        "noise_goes_as_far_as_its_own_rate_lets_it",
        "prediction_has_no_dropout",
        "the_grid_is_searched_by_held_out_rows",
        "the_layers_are_the_papers[images-encoder1-decoder1]",
        "the_layers_are_the_papers[small-encoder0-decoder0]",
    ),
    "test_diagnostics.py": ("a_right_density_is_uniform_and_wrong_ones_are_not[2]",),
    "test_docstrings.py": (
        "examples_run[gpcde.density.samples]",
        "examples_run[gpcde.estimators.gp]",
        "examples_run[gpcde.inference.start]",
    ),
    "test_expectations.py": (
        "gradients_equal_finite_differences[polynomial 3, some columns-diagonal]",
        "no_array_of_points_by_pairs_is_made[polynomial 2-diagonal]",
        "no_array_of_points_by_pairs_is_made[polynomial 2-full]",
        "sum_over_points_does_not_depend_on_the_blocks[diagonal]",
        "without_variance_the_gradients_are_those_of_the_plain_kernel[polynomial 3, some columns-diagonal]",
        "without_variance_the_gradients_are_those_of_the_plain_kernel[polynomial 3, some columns-full]",
        "without_variance_the_gradients_are_those_of_the_plain_kernel[rbf, some columns-full]",
    ),
    "test_experiments.py": (
        "of_two_starts_the_training_bound_chooses",
        "the_quick_preset_makes_tables_and_figures[mnist]",
        "the_quick_preset_makes_tables_and_figures[natgrad]",
        "the_quick_preset_makes_tables_and_figures[omniglot]",
        "the_quick_preset_makes_tables_and_figures[taxi]",
        "the_quick_preset_makes_tables_and_figures[uci]",
        "the_warp_starts_as_its_settings_say[float32]",
    ),
    "test_explorer.py": (
        "a_map_is_the_joint_density_of_two_outputs[P]",
        "a_map_is_the_joint_density_of_two_outputs[two outputs]",
        "some_draws_are_those_of_what_stands_beside_the_model[0.4]",
        "the_band_is_that_of_drawn_densities",
    ),
    "test_files.py": (
        "a_model_from_a_file_answers_alike[P]",
        "a_model_from_a_file_answers_alike[amortised]",
        "a_model_from_a_file_answers_alike[gaussian]",
    ),
    "test_gp.py": (
        "a_file_holds_the_same_model[model0]",
        "a_function_without_noise_is_followed_and_not_lost_to_rounding[12]",
        "a_gp_is_gpcde_without_latents[<lambda>-rbf]",
        "a_gp_is_gpcde_without_latents[frame-matern32]",
    ),
    "test_gpcde.py": (
        "a_clone_has_the_settings_and_nothing_learnt[P]",
        "pickled_models_answer_alike_outside_our_scope[P]",
        "pickled_models_answer_alike_outside_our_scope[categories]",
        "the_density_is_one_in_the_units_of_y[categories]",
        "the_quick_log_density_is_that_of_the_components[P]",
        "the_quick_log_density_is_that_of_the_components[amortised]",
        "the_quick_log_density_is_that_of_the_components[categories]",
        "the_quick_log_density_is_that_of_the_components[gaussian]",
        "the_quick_log_density_is_that_of_the_components[mdn of categories]",
        "the_quick_log_density_is_that_of_the_components[two outputs]",
        "the_score_is_the_mean_log_density[P]",
        "the_score_is_the_mean_log_density[categories]",
    ),
    "test_gpcde_design.py": (
        "designs_can_be_searched",
        "it_is_cloned_saved_and_loaded[amortised]",
        "it_learns[amortised]",
    ),
    "test_gpcde_training.py": (
        "a_seed_decides_everything[amortised]",
        "a_seed_decides_everything[categories]",
        "a_seed_decides_everything[gaussian]",
    ),
    "test_importance.py": (
        "an_uncertain_a_is_integrated_out_as_well",
        "blocks_of_rows_and_of_draws_may_be_of_any_size",
        "it_agrees_with_quadrature[constant]",
    ),
    "test_kde.py": ("many_rows",),
    "test_kernels.py": (
        "factors_multiply_to_the_kernel[three factors]",
        "gradients_equal_finite_differences[product]",
    ),
    "test_latent_posterior.py": (
        "free_form_weights_are_what_a_node_is_worth_to_the_bound[P]",
        "free_form_weights_are_what_a_node_is_worth_to_the_bound[categories]",
        "free_form_weights_are_what_a_node_is_worth_to_the_bound[two outputs]",
        "points_of_their_own_find_about_what_training_found",
    ),
    "test_latents.py": (
        "free_form_nodes_are_a_rule_for_the_prior[2-gauss-hermite-1e-12]",
        "importance_weights_are_the_ratio_of_prior_and_posterior[full-standard]",
    ),
    "test_load.py": ("threads_agree_with_one[mdn]",),
    "test_mdn.py": (
        "it_learns_a_correlation_if_it_may[diagonal]",
        "the_estimators_answer_is_the_networks_density[mdn of categories]",
    ),
    "test_mixed_noise.py": (
        "a_drawn_density_has_that_noise_alone[P]",
        "a_drawn_density_has_that_noise_alone[identity]",
        "derivatives_are_those_of_the_dense_formulas[uncertain]",
        "natural_steps_never_lower_the_bound",
        "with_all_inputs_inducing_the_bound_is_the_evidence[identity]",
    ),
    "test_mixing.py": ("the_bound_is_flat_where_natural_steps_end[shared]",),
    "test_names.py": ("a_file_is_read_whichever_estimator_wrote_it",),
    "test_old_files.py": (
        "an_old_file_answers_as_it_did[categories_project]",
        "an_old_file_answers_as_it_did[free_form_concatenate_matern52]",
        "an_old_file_answers_as_it_did[free_form_warp]",
    ),
    "test_padding.py": (
        "padding_changes_no_bound_no_statistic_and_no_step[free-form]",
        "padding_changes_no_bound_no_statistic_and_no_step[importance]",
        "padding_changes_no_bound_no_statistic_and_no_step[projected]",
    ),
    "test_parts.py": ("a_mixing_with_the_same_moments_is_the_same_model[4]",),
    "test_paths.py": (
        "densities_average_to_the_prediction[categories]",
        "densities_average_to_the_prediction[none]",
        "draws_have_the_moments_of_the_posterior[matern32-x-None]",
        "draws_have_the_moments_of_the_posterior[matern52 \\xd7 rbf-bent-None]",
        "draws_have_the_moments_of_the_posterior[rbf \\xd7 matern32-x-Identity(dim=3)]",
        "draws_have_the_moments_of_the_posterior[rbf-x-Identity(dim=3)]",
        "draws_share_one_uncertain_projection[A x]",
        "frequencies_are_of_the_kernels_spectrum[matern32]",
        "frequencies_are_of_the_kernels_spectrum[rbf \\xd7 matern32]",
        "the_density_along_a_path_is_a_sum_of_normals_round_it[P-varying]",
        "the_density_along_a_path_is_a_sum_of_normals_round_it[identity-constant]",
        "what_does_not_depend_on_x_may_be_computed_once[A x]",
        "what_does_not_depend_on_x_may_be_computed_once[bent]",
    ),
    "test_posterior.py": (
        "a_full_natural_step_reaches_the_optimum_and_a_second_stays[gaussian]",
        "a_full_natural_step_reaches_the_optimum_and_a_second_stays[more columns than outputs]",
        "a_full_natural_step_reaches_the_optimum_and_a_second_stays[one column]",
        "a_full_natural_step_takes_expectations_over_q_of_w[closed]",
        "an_em_step_never_lowers_the_free_form_bound[one column]",
        "an_em_step_never_lowers_the_free_form_bound[two columns]",
        "the_optimum_is_the_maximum_over_all_joint_gaussians[more columns than outputs]",
        "the_optimum_is_the_maximum_over_all_joint_gaussians[one column]",
        "the_optimum_is_the_maximum_over_all_joint_gaussians[two columns]",
        "where_the_noise_varies_a_full_natural_step_reaches_the_optimum[known latents]",
        "where_the_noise_varies_a_full_natural_step_reaches_the_optimum[no latents]",
    ),
    "test_predictor.py": (
        "densities_integrate_to_one[1-True]",
        "the_density_is_the_dense_mixture[1]",
        "the_density_is_the_dense_mixture[2]",
        "the_density_is_the_dense_mixture[3]",
        "where_noise_and_prior_vary_so_do_variances_and_weights[2]",
    ),
    "test_programs.py": ("a_second_process_compiles_nothing_and_answers_the_same",),
    "test_rivals.py": (
        "each_comes_close_to_the_truth[bimodal-CVAE]",
        "each_comes_close_to_the_truth[bimodal-GPCDE0]",
        "each_comes_close_to_the_truth[bimodal-GPCDE1]",
        "each_comes_close_to_the_truth[correlated-ConditionalKDE]",
        "each_comes_close_to_the_truth[correlated-GPCDE]",
        "each_comes_close_to_the_truth[correlated-Stacked]",
        "each_comes_close_to_the_truth[heteroscedastic-CVAE]",
        "each_comes_close_to_the_truth[smooth-GPCDE]",
        "each_comes_close_to_the_truth[smooth-GP]",
        "each_comes_close_to_the_truth[unconditional-GPCDE]",
        "each_comes_close_to_the_truth[unconditional-GPLVM]",
    ),
    "test_robust.py": (
        "a_wild_value_costs_the_gaussian_process_next_to_nothing[y]",
        "constant_columns_change_nothing[CVAE]",
        "constant_columns_change_nothing[ConditionalKDE]",
        "constant_columns_change_nothing[Flow]",
        "constant_columns_change_nothing[GPCDE and companions]",
        "constant_columns_change_nothing[Stacked]",
        "densities_of_values_that_repeat_stay_finite[<lambda>-whole numbers]",
        "without_any_column_that_varies_the_density_is_of_y_alone[CVAE]",
        "without_any_column_that_varies_the_density_is_of_y_alone[Flow]",
        "without_any_column_that_varies_the_density_is_of_y_alone[GPCDE and companions]",
        "without_any_column_that_varies_the_density_is_of_y_alone[GP]",
        "without_any_column_that_varies_the_density_is_of_y_alone[Stacked]",
    ),
    "test_site.py": ("an_example_runs_without_its_data[geyser]",),
    "test_special_cases.py": (
        "a_narrow_q_of_w_is_regression_on_known_latents[False]",
        "latents_without_influence_leave_sparse_regression[closed]",
        "latents_without_influence_leave_sparse_regression[draws]",
        "latents_without_influence_leave_sparse_regression[importance]",
        "the_optimal_bound_is_the_dense_collapsed_bound[1]",
        "the_optimal_bound_is_the_dense_collapsed_bound[4]",
        "without_inputs_it_is_the_bayesian_gplvm[False]",
    ),
    "test_spread.py": ("several_devices_give_the_bound_and_the_model_of_one",),
    "test_stacked.py": (
        "the_stack_is_the_weighted_sum_of_its_members[alike outputs]",
        "the_stack_is_the_weighted_sum_of_its_members[full covariances]",
    ),
    "test_start.py": (
        "a_constant_output_with_categories_has_a_start",
        "a_start_with_a_conjugate_mixing_keeps_its_prior_where_it_was",
        "categories_and_mixing_and_no_inputs_have_a_start",
        "latents_do_not_collapse[gaussian-closed]",
        "twenty_rows_and_more_inducing_inputs_than_rows[amortised]",
        "twenty_rows_and_more_inducing_inputs_than_rows[float32]",
        "twenty_rows_and_more_inducing_inputs_than_rows[gaussian]",
        "without_latents_noise_and_features_are_as_designed",
    ),
    "test_train.py": (
        "a_step_keeps_every_type[GaussianMixing]",
        "many_functions_cost_no_more_memory_than_one[closed-ConjugateMixing]",
        "many_functions_cost_no_more_memory_than_one[closed-PointMixing]",
        "many_functions_cost_no_more_memory_than_one[free-form-GaussianMixing]",
        "many_functions_cost_no_more_memory_than_one[free-form-PointMixing]",
        "training_with_a_conjugate_mixing_finds_the_columns_of_the_outputs",
    ),
    "test_trend.py": (
        "a_design_says_so",
        "functions_drawn_have_the_trend_too[smooth]",
        "with_latents_it_is_in_the_covariance_of_each[True]",
    ),
    "test_weights.py": (
        "a_warm_start_knows_repeated_rows_again[none]",
        "a_weight_is_how_often_a_row_is_there[P of log y]",
        "a_weight_is_how_often_a_row_is_there[amortised, in batches]",
        "a_weight_is_how_often_a_row_is_there[categories]",
        "a_weight_is_how_often_a_row_is_there[free-form]",
        "a_weight_is_how_often_a_row_is_there[gaussian, in batches]",
    ),
}
"""Tests that compile for long, and beside which a shorter one makes the same claim: for `make test-all`."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.name.removeprefix("test_") in LONG.get(item.path.name, ()):
            item.add_marker(pytest.mark.slow)


def pad_few_rows() -> None:
    """Most tests have few rows, of many numbers: padded to one, they share their programs."""
    from gpcde.runtime import blocks

    blocks.LEAST = 48


def pytest_collection_finish() -> None:
    share_programs()
    pad_few_rows()
    gc.freeze()  # what is imported stays, and looking through it again and again takes its time
    gc.set_threshold(20_000, 20, 20)  # tracing makes many objects that stay
    gc.enable()


def pytest_unconfigure() -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        shutil.rmtree(os.environ["GPCDE_CACHE_DIR"], ignore_errors=True)


@pytest.fixture(autouse=True, scope="module")
def types_checked() -> None:
    typecheck.begin()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody says how long to train, and how many inducing inputs, as in the documents, it is not for long."""
    from gpcde.estimators import base, ensemble, plan

    monkeypatch.setattr(ensemble, "MOST_STEPS", 40)
    for name in ("FEW_STEPS", "MANY_STEPS", "MOST_STEPS", "FIRST_STEPS"):
        monkeypatch.setattr(plan, name, 50)
    for name in ("_inducing", "_first_inducing"):  # for any number of rows; curves that cross need more
        monkeypatch.setattr(plan, name, lambda rows, inputs, *more: 16 if inputs == 1 else 8)
    monkeypatch.setattr(base, "ENOUGH_HELD", 1)


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    import jax

    from gpcde.runtime.precision import scope

    with scope():
        yield
    if next(TESTS) % 50 == 0 and is_crowded():
        jax.clear_caches()


def is_crowded() -> bool:
    """Whether a third of the memory maps that Linux allows is in use, or who knows; that is 3 or 4 GB."""
    try:
        return Path("/proc/self/maps").read_bytes().count(b"\n") > 20_000
    except OSError:
        return True
