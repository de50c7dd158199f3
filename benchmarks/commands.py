"""Defines the command line of the laboratory, `python -m benchmarks`."""

from __future__ import annotations

import click

from dacergnn.cli import LazyGroup, Table

SUITES: Table = {
    "relational": ("benchmarks.relational.command:relational", "Layers of relations against PyG, DGL and plain torch."),
    "caching": (
        "benchmarks.caching.command:caching",
        "Homogeneous layers by caching strategy, size and format.",
    ),
    "plot": ("benchmarks.caching.plot:plot", "Draw the figures of the suite of caching strategies."),
    "batches": ("benchmarks.batches.command:batches", "Training on sampled batches, each of which is new."),
    "networks": ("benchmarks.networks.command:networks", "Training steps of whole networks, on ever new graphs."),
    "scale": ("benchmarks.scale.command:scale", "Steps within a limit of memory, or in several processes."),
    "papers": ("benchmarks.papers.command:papers", "Figures and tables of papers, beside the papers' numbers."),
    "model": (
        "benchmarks.learned_model.command:model",
        "Collect samples, train and judge models that choose plans.",
    ),
}
"""Suites, the papers, and the learned model."""
QUESTIONS = {
    "accuracy": "Accuracy of PyG's models, as they are and optimized.",
    "compile_time": "Seconds from a layer to its loaded library.",
    "exchanged_bytes": "Exchange of the fewest bytes against that of the rows of sources.",
    "exported_requests": "Requests to exported libraries against eager PyTorch.",
    "front_ends": "Layers in every front end against the built-in ones.",
    "gpu_profile": "Operators on a CUDA device beside their forecast.",
    "level_bounds": "How far ahead of hector's plan the best one can be.",
    "order_of_nodes": "Ranges of destinations that read a source, by the order of nodes.",
    "sampling": "Sampling of neighbours against DGL's.",
    "scale_on_paper": "Steps on graphs that no single machine holds, by the cost model.",
    "segment_gemm": "Typed products against torch.mm.",
    "sixteen_bits": "Layers in bfloat16 and float16 against float32.",
    "steps_in_files": "Steps of a layer whose graph and rows lie in files.",
    "threads": "How evenly threads share the work of kernels.",
}
"""Scripts of `benchmarks/questions`, each for a single question."""
COMMANDS: Table = SUITES | {name: (f"benchmarks.questions.{name}:main", line) for name, line in QUESTIONS.items()}


@click.group(cls=LazyGroup, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Measure suites of layers, what papers show, models of cost, and answers to single questions."""
