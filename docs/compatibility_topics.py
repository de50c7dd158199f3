"""Lists what may be done to a compiled layer, and what happens: lines of compatibility_tables.md, by tests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Topic:
    """One thing that is done to a layer.

    Args:
        test: Name of the test function.
        title: Heading of the column.
        done: What is done.
        effect: What happens.
    """

    test: str
    title: str
    done: str
    effect: str


TOPICS: dict[str, list[Topic]] = {
    "Gradients": [
        Topic(
            "test_backwards_add_up_and_are_clipped",
            "two backwards",
            "two backwards, then `clip_grad_norm_`",
            "gradients add up, and are clipped once each",
        ),
        Topic(
            "test_gradients_have_memory_of_their_own",
            "own memory",
            "a backward",
            "no two gradients share memory",
        ),
        Topic(
            "test_features_that_are_written_to",
            "written features",
            "features that are written to before the backward, as by `x += layer(x)`, where the original allows it",
            "gradients are the original's; hidden features are copied",
        ),
        Topic(
            "test_a_node_that_no_edge_reads",
            "missing",
            "NaN in the features of a node that no edge reads",
            "it reaches no gradient of a weight that is a number in the original",
        ),
        Topic(
            "test_results_are_written_to_in_place",
            "written to",
            "results that are written to in place (`relu_`), then a backward",
            "the gradients of the original",
        ),
        Topic(
            "test_a_backward_from_one_result_leaves_other_parameters_alone",
            "one result",
            "a backward from one of several results",
            "what it does not reach keeps the gradient None",
        ),
        Topic(
            "test_second_derivatives",
            "second",
            "`autograd.grad` of gradients, by features and parameters",
            "the second derivatives, compiled; those of higher order likewise",
        ),
        Topic(
            "test_penalty_of_a_gradient",
            "penalty",
            "a backward from a function of gradients (`create_graph=True`)",
            "parameters get the gradients that the original's get",
        ),
        Topic(
            "test_penalty_of_a_gradient_beside_another_result",
            "penalty of one result",
            "the same with one of several results, beside a loss of another one",
            "parameters get the gradients that the original's get (zeros perhaps, where they have none)",
        ),
        Topic(
            "test_tangents",
            "forward mode",
            "dual tensors of `torch.autograd.forward_ad`",
            "tangents of the results, compiled",
        ),
        Topic(
            "test_functional_transforms",
            "`torch.func`",
            "`grad`, `jacrev`, `jacfwd`, `hessian`, `is_grads_batched`",
            "the derivatives that autograd gives",
        ),
        Topic(
            "test_batches_of_calls",
            "`vmap`",
            "`torch.func.vmap` over features",
            "the results of one call after the other, which is how they are computed",
        ),
        Topic(
            "test_gradients_over_batches_of_calls",
            "around `vmap`",
            "a backward, `grad` or `vjp` of a function that calls `vmap`",
            "the gradients of one call after the other",
        ),
        Topic(
            "test_ensembles_of_parameters",
            "ensembles",
            "`vmap` over stacks of parameters (`torch.func.functional_call`)",
            "the gradients of the original",
        ),
        Topic(
            "test_linear_functions_of_tangents",
            "`linearize`",
            "`torch.func.linearize`, or `make_fx`, which record torch's operations",
            "the original's operations are recorded; layers of this package are recorded as one operator",
        ),
    ],
    "Options and parameters": [
        Topic(
            "test_options_count_at_every_call",
            "options",
            "an option is set, on the compiled layer or on the original",
            "it counts at the next call of both, and again when it is set back",
        ),
        Topic(
            "test_flow_is_that_of_the_moment",
            "`flow`",
            '`flow = "target_to_source"`',
            "messages go the other way, compiled by tracing",
        ),
        Topic(
            "test_parameters_are_attributes",
            "parameters",
            "weight norm, spectral norm, pruning, a new parameter, a write in place; before or after `optimize`",
            "the call computes with the attribute as it is; gradients reach what it is made of",
        ),
        Topic(
            "test_parametrizations_may_go",
            "parametrized for a while",
            "`register_parametrization`, a call, `remove_parametrizations`",
            "the call computes with the parameter as it is left",
        ),
        Topic(
            "test_biases_may_go",
            "`bias = None`",
            "a bias of the layer, or of a part, is taken away",
            "the call has none",
        ),
        Topic(
            "test_train_and_eval_change_nothing_here",
            "`train`, `eval`",
            "`train()` and `eval()` in turns",
            "both layers are in the same mode, and give the same",
        ),
    ],
    "Hooks and masks": [
        Topic(
            "test_hooks_of_torch",
            "of torch",
            "a forward hook on the layer, before or after `optimize`",
            "it runs around the compiled call, and may change its result",
        ),
        Topic(
            "test_hooks_on_parts",
            "on parts",
            "a forward hook on a Linear within the layer",
            "the original runs, since hooks see tensors that a program does not make; hooks of torch that set a "
            "parameter (weight norm, pruning) do not count",
        ),
        Topic(
            "test_hooks_of_message_passing",
            "of PyG",
            "hooks of `propagate`, `message` or `aggregate`",
            "the original runs as long as there are any: they see messages, which a program does not make",
        ),
        Topic(
            "test_edge_masks_of_explainers",
            "edge masks",
            "`set_masks` of PyG's explainers (`explain = True`), later `clear_masks`",
            "the layer is captured: the mask is a factor of the messages, and has a gradient; a layer with an "
            "`explain_message` of its own runs the original",
        ),
    ],
    "The module, and ways to run it": [
        Topic(
            "test_instances_and_attributes",
            "is one of",
            "`isinstance`, `repr`, `parameters`, `revert`, a second `optimize`",
            "an instance of the original's class with the same parameters",
        ),
        Topic(
            "test_copies",
            "copies",
            "`copy`, `deepcopy`, `pickle`, `torch.save`",
            "copies are compiled, too; all but those of `copy` have parameters of their own",
        ),
        Topic(
            "test_state_dicts_go_both_ways",
            "state",
            "`state_dict` and `load_state_dict`",
            "those of the original, in both directions",
        ),
        Topic(
            "test_conversions_are_those_of_both",
            "converted",
            "`.double()` between calls",
            "the parameters of both are converted",
        ),
        Topic(
            "test_an_optimizer_made_before_goes_on",
            "optimizer",
            "an optimizer that was made before `optimize` goes on",
            "it steps the parameters of both",
        ),
        Topic(
            "test_a_layer_goes_when_nobody_holds_it",
            "is freed",
            "the last reference goes",
            "the layer goes at once, without the garbage collector",
        ),
        Topic(
            "test_checkpoints",
            "checkpoints",
            "`torch.utils.checkpoint` with `use_reentrant=False`",
            "the forward runs again in the backward; gradients are the same",
        ),
        Topic(
            "test_inference_first_and_training_after",
            "inference first",
            "the first call in `torch.inference_mode()`, then training",
            "what the first call has prepared takes part in training",
        ),
        Topic(
            "test_calls_without_gradients",
            "`no_grad`",
            "calls under `no_grad` and in `inference_mode`",
            "the same results, without gradients",
        ),
        Topic(
            "test_arguments_by_name",
            "by name",
            "arguments are given by their names",
            "the results of the original",
        ),
        Topic(
            "test_calls_like_one_before_are_not_examined",
            "repeated",
            "calls like one before, with other features",
            "they run its program at once, in training and evaluation",
        ),
        Topic(
            "test_calls_unlike_those_before_are_examined",
            "not repeated",
            "calls unlike those before, under autocast, say",
            "they are examined, as all calls of layers are that make their weights anew",
        ),
        Topic(
            "test_arguments_are_not_kept",
            "keeps nothing",
            "the last reference to the arguments of repeated calls goes",
            "they go, too",
        ),
        Topic(
            "test_torch_compile",
            "`torch.compile`",
            "a call and its backward in `torch.compile`, of the layer and of a deep copy",
            "the values of the original; without breaks, but for graphs of DGL, which torch cannot trace",
        ),
        Topic(
            "test_torch_compile_under_autocast",
            "compiled under autocast",
            "a call in `torch.compile`, under `torch.autocast`",
            "the type and values of the original",
        ),
        Topic(
            "test_programs_of_torch_export_never_run_another_layer",
            "`torch.export`",
            "a call is exported, its layer goes, others come",
            "the program carries the layer's program, and needs no layer",
        ),
        Topic(
            "test_programs_of_torch_jit",
            "`torch.jit`",
            "`torch.jit.trace`",
            "the original's operations are written down",
        ),
        Topic(
            "test_profilers_show_layers_and_programs",
            "profiler",
            "a call and its backward under `torch.profiler`",
            "events bear the names of the layer and of its programs",
        ),
    ],
    "Precision": [
        Topic(
            "test_elements_of_sixteen_bits",
            "16 bits",
            "`.bfloat16()`, `.half()`",
            "results and gradients are those of float64 within the rounding of the type",
        ),
        Topic(
            "test_autocast",
            "autocast",
            '`torch.autocast("cpu")`',
            "the layer computes in bfloat16, captured layers in float32; results have the types of the original's",
        ),
    ],
}
