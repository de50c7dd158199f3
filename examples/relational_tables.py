"""Makes the database of `examples.relational`, from simulated tables or those of RelBench, and turns it into a graph.

In the simulated tables, customers write reviews of products. A customer is more likely to write another one within a
month if the last products were good.
"""

from __future__ import annotations

from dataclasses import dataclass

import click
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

MONTH = 30 * 24 * 60 * 60


@dataclass
class Table:
    """Holds a table: float numbers [rows, k], categories [rows, c], other tables' rows, and seconds [rows]."""

    numbers: Tensor
    categories: Tensor
    keys: dict[str, tuple[str, Tensor]]  # column -> (table, its row, or -1 for none)
    time: Tensor | None = None


@dataclass
class Labels:
    """Holds what a model predicts: for rows of a table at given times, whether ``value`` is 1 or 0."""

    table: str
    row: Tensor
    time: Tensor
    value: Tensor


Database = tuple[dict[str, Table], Labels, Labels]  # tables, labels for training, later labels for tests


def made_database(customers: int, months: int = 12) -> Database:
    """Simulates customers who come back for as long as they like what they buy."""
    products = customers // 5
    price, kind, region = torch.rand(products), torch.randint(8, (products,)), torch.randint(5, (customers,))
    quality = torch.randn(8)[kind] + 2 * price - 1
    mood = torch.zeros(customers)
    bought: list[tuple[Tensor, ...]] = []
    labels: list[tuple[Tensor, ...]] = []
    for month in range(months):
        active = torch.rand(customers) < (3 * mood).sigmoid()
        labels.append((torch.arange(customers), torch.full((customers,), month * MONTH - 1), active.float()))
        customer = active.nonzero().flatten().repeat_interleave(2)
        product = torch.randint(products, customer.shape)
        rating = quality[product] + 0.3 * torch.randn(len(customer))
        mood = mood.scatter_reduce(0, customer, rating, "mean", include_self=True)
        bought.append((customer, product, rating, month * MONTH + torch.randint(MONTH, customer.shape)))
    customer, product, rating, when = map(torch.cat, zip(*bought, strict=True))
    none = torch.empty(customers, 0)
    tables = {
        "customers": Table(none, region[:, None], {}),
        "products": Table(price[:, None], kind[:, None], {}),
        "reviews": Table(
            rating[:, None],
            torch.empty(len(rating), 0, dtype=torch.int64),
            {"customer": ("customers", customer), "product": ("products", product)},
            when,
        ),
    }
    parts = (labels[2 : months - 2], labels[months - 2 :])
    return tables, *(Labels("customers", *map(torch.cat, zip(*part, strict=True))) for part in parts)


def relbench_database(dataset: str, task: str) -> Database:
    """Reads the tables of a data set of RelBench, and the labels of one of its binary classifications."""
    try:
        import pandas as pd
        from relbench import load_dataset

        found = load_dataset(dataset).load_task(task)
        database = found.get_db()
        labels = [found.get_table(split).df for split in ("train", "val")]
    except Exception as error:  # the package is missing, the name is unknown, or the data cannot be loaded
        raise click.ClickException(
            f"RelBench's {dataset} {task} cannot be read ({type(error).__name__}: {error}); "
            "install it with pip install 'relbench>=3' and give it access to the network, or leave --relbench out."
        ) from error

    def seconds(column: pd.Series) -> Tensor:
        return torch.tensor(column.to_numpy("datetime64[s]").astype("int64"))

    tables: dict[str, Table] = {}
    for name, table in database.table_dict.items():
        others = table.df.drop(columns=[*filter(None, (table.pkey_col, table.time_col)), *table.fkey_col_to_pkey_table])
        numbers = others.select_dtypes(["number", "bool"]).astype("float32")
        numbers = ((numbers - numbers.mean()) / (numbers.std() + 1e-6)).fillna(0)
        texts = others.select_dtypes(["object", "string", "category"]).astype(str)
        codes = [torch.tensor(pd.factorize(column)[0]) for _, column in texts.items() if column.nunique() <= 100]
        keys = {
            column: (other, torch.tensor(table.df[column].fillna(-1).to_numpy("int64")))
            for column, other in table.fkey_col_to_pkey_table.items()
        }
        empty = torch.empty(len(table.df), 0, dtype=torch.int64)
        categories = torch.stack(codes, 1) if codes else empty
        when = seconds(table.df[table.time_col]) if table.time_col else None
        tables[name] = Table(torch.tensor(numbers.to_numpy("float32")), categories, keys, when)
    columns = [(df[found.entity_col], df[found.time_col], df[found.target_col]) for df in labels]
    train, val = (
        Labels(found.entity_table, torch.tensor(r.to_numpy("int64")), seconds(t), torch.tensor(y.to_numpy("float32")))
        for r, t, y in columns
    )
    return tables, train, val


def to_graph(tables: dict[str, Table]) -> HeteroData:
    """Makes each row a node, and each foreign key two edges in opposite directions."""
    data = HeteroData()
    for name, table in tables.items():
        data[name].numbers, data[name].categories = table.numbers, table.categories
        data[name].num_nodes = len(table.numbers)
        if table.time is not None:
            data[name].time = table.time
        for column, (other, row) in table.keys.items():
            own = (row >= 0).nonzero().flatten()
            data[name, column, other].edge_index = torch.stack([own, row[own]])
            data[other, f"rev_{column}", name].edge_index = torch.stack([row[own], own])
    return data
