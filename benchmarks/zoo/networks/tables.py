"""Networks over tables, graphs and points: recommendation, autoencoders, molecules, shapes, control."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from benchmarks.zoo.catalogue import Module, Network, Tensor, floats, integers, network, torch, unit
from benchmarks.zoo.networks.classification import BATCHES

nn: Any = torch.nn
f: Any = torch.nn.functional


class NCF(Module):
    """He et al. (2017): a product of embeddings beside a perceptron over others."""

    def __init__(self, users: int = 300, items: int = 200) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(users, 16), nn.Embedding(items, 16)
        self.user2, self.item2 = nn.Embedding(users, 16), nn.Embedding(items, 16)
        self.layers = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.score = nn.Linear(32, 1)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        product = self.user(user) * self.item(item)
        deep = self.layers(torch.cat([self.user2(user), self.item2(item)], -1))
        return torch.sigmoid(self.score(torch.cat([product, deep], -1))).squeeze(-1)


@network
def ncf() -> Network:
    """Any number of pairs."""
    inputs = {"user": integers(300, "batch"), "item": integers(200, "batch")}
    return Network(NCF(), inputs, BATCHES)


class DeepFM(Module):
    """Guo et al. (2017): factorisation machine and perceptron over the same embeddings."""

    def __init__(self, fields: int = 6, values: int = 50) -> None:
        super().__init__()
        self.register_buffer("start", torch.arange(fields) * values)
        self.start: Tensor
        self.first, self.second = nn.Embedding(fields * values, 1), nn.Embedding(fields * values, 8)
        self.layers = nn.Sequential(nn.Linear(fields * 8, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, values: Tensor) -> Tensor:
        places = values + self.start
        x = self.second(places)
        pairs = 0.5 * (x.sum(1).square() - x.square().sum(1)).sum(1, keepdim=True)
        return torch.sigmoid(self.first(places).sum(1) + pairs + self.layers(x.flatten(1)))


@network
def deepfm() -> Network:
    """Six fields."""
    return Network(DeepFM(), {"values": integers(50, "batch", 6)}, BATCHES)


class DLRM(Module):
    """Naumov et al. (2019): bags of embeddings, and all pairs of their products."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(100, 16) for _ in range(3)])
        self.dense = nn.Sequential(nn.Linear(5, 16), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(16 + 6, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())
        lower = torch.tril_indices(4, 4, -1)
        self.register_buffer("rows", lower[0])
        self.register_buffer("columns", lower[1])
        self.rows: Tensor
        self.columns: Tensor

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        x = self.dense(dense)
        bags = [table(sparse[:, k]).sum(1) for k, table in enumerate(self.tables)]
        every = torch.stack([x, *bags], 1)
        products = (every @ every.transpose(-1, -2))[:, self.rows, self.columns]
        return self.top(torch.cat([x, products], 1))


@network
def dlrm() -> Network:
    """Bags of any number of words."""
    sizes = {"batch": (1, 4, 7), "words": (1, 3, 5)}
    inputs = {"dense": floats("batch", 5), "sparse": integers(100, "batch", 3, "words")}
    return Network(DLRM(), inputs, sizes)


class WideAndDeep(Module):
    """Cheng et al. (2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(80, 8)
        self.norm = nn.BatchNorm1d(4 * 8 + 7)
        self.deep = nn.Sequential(nn.Linear(39, 32), nn.SELU(), nn.Linear(32, 1))
        self.wide = nn.Linear(7, 1)

    def forward(self, classes: Tensor, numbers: Tensor) -> Tensor:
        x = self.norm(torch.cat([self.embed(classes).flatten(1), numbers], 1))
        return torch.sigmoid(self.deep(x) + self.wide(numbers))


@network
def wide_and_deep() -> Network:
    """Four classes and seven numbers."""
    inputs = {"classes": integers(80, "batch", 4), "numbers": floats("batch", 7)}
    return Network(WideAndDeep(), inputs, BATCHES)


class TabTransformer(Module):
    """Huang et al. (2020): the columns of a table are words."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(60, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
        self.encode = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.Linear(6 * 16 + 3, 16), nn.GELU(), nn.Linear(16, 2))

    def forward(self, classes: Tensor, numbers: Tensor) -> Tensor:
        x = self.encode(self.embed(classes)).flatten(1)
        return self.head(torch.cat([x, f.layer_norm(numbers, [3])], 1))


@network
def tab_transformer() -> Network:
    """Six classes and three numbers."""
    inputs = {"classes": integers(60, "batch", 6), "numbers": floats("batch", 3)}
    return Network(TabTransformer(), inputs, BATCHES)


class GraphConvolution(Module):
    """Kipf and Welling (2017) on a dense adjacency, normalised here."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, features: Tensor, adjacency: Tensor) -> Tensor:
        a = adjacency + torch.eye(adjacency.shape[-1])
        scale = a.sum(-1).pow(-0.5)
        a = scale[..., None] * a * scale[..., None, :]
        return f.log_softmax(self.second(a @ f.relu(self.first(a @ features))), -1)


@network
def graph_convolution() -> Network:
    """Graphs of any number of nodes."""
    sizes = {"nodes": (3, 10, 25)}
    inputs = {"features": floats("nodes", 8), "adjacency": unit("nodes", "nodes")}
    return Network(GraphConvolution(), inputs, sizes)


class MessagePassing(Module):
    """GraphSAGE (Hamilton et al., 2017): means over edges, which are pairs of nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.others = nn.Linear(8, 16), nn.Linear(8, 16)
        self.classes = nn.Linear(16, 3)

    def forward(self, features: Tensor, edges: Tensor) -> Tensor:
        source, target = edges[0], edges[1]
        sums = torch.zeros_like(features).index_add(0, target, features[source])
        ones = torch.ones(source.shape[0])
        counts = torch.zeros(features.shape[0]).index_add(0, target, ones)
        means = sums / counts.clamp(min=1)[:, None]
        return self.classes(f.relu(self.own(features) + self.others(means)))


@network
def graph_sage() -> Network:
    """Any number of nodes and edges."""
    sizes = {"nodes": (4, 10, 25), "edges": (6, 30, 80)}
    inputs = {"features": floats("nodes", 8), "edges": integers(4, 2, "edges")}
    return Network(MessagePassing(), inputs, sizes)


class GraphAttention(Module):
    """Velickovic et al. (2018) on a dense mask of edges."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Linear(8, 16, bias=False)
        self.left, self.right = nn.Linear(16, 1, bias=False), nn.Linear(16, 1, bias=False)

    def forward(self, features: Tensor, adjacency: Tensor) -> Tensor:
        h = self.w(features)
        scores = f.leaky_relu(self.left(h) + self.right(h).transpose(-1, -2), 0.2)
        scores = scores.masked_fill(adjacency < 0.5, -1e9)
        return f.elu(torch.softmax(scores, -1) @ h)


@network
def graph_attention() -> Network:
    """Graphs of any number of nodes."""
    sizes = {"nodes": (3, 10, 25)}
    inputs = {"features": floats("nodes", 8), "adjacency": unit("nodes", "nodes")}
    return Network(GraphAttention(), inputs, sizes)


class PointNet(Module):
    """Qi et al. (2017): a small network turns the points, and the largest of each feature remains."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
        self.matrix = nn.Linear(16, 9)
        self.features = nn.Sequential(nn.Conv1d(3, 32, 1), nn.BatchNorm1d(32), nn.ReLU())
        self.classes = nn.Linear(32, 6)

    def forward(self, points: Tensor) -> Tensor:
        matrix = self.matrix(self.turn(points).amax(2)).view(-1, 3, 3) + torch.eye(3)
        turned = torch.bmm(points.transpose(1, 2), matrix).transpose(1, 2)
        return f.log_softmax(self.classes(torch.max(self.features(turned), 2)[0]), -1)


@network
def pointnet() -> Network:
    """Any number of points."""
    sizes = {"batch": (1, 2, 3), "points": (16, 50, 101)}
    return Network(PointNet(), {"points": floats("batch", 3, "points")}, sizes)


@network
def autoencoder() -> Network:
    """Dense layers through a bottleneck."""
    widths = (64, 32, 8, 32, 64)
    layers: list[Any] = []
    for a, b in pairwise(widths):
        layers += [nn.Linear(a, b), nn.Tanh()]
    return Network(nn.Sequential(*layers[:-1]), {"x": floats("batch", 64)}, BATCHES)


@network
def mlp_mixer() -> Network:
    """Tolstikhin et al. (2021): perceptrons over patches, then over channels."""

    class Mixer(Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch = nn.Conv2d(3, 32, 8, 8)
            self.norm1, self.norm2 = nn.LayerNorm(32), nn.LayerNorm(32)
            self.places = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
            self.channels = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
            self.classes = nn.Linear(32, 10)

        def forward(self, image: Tensor) -> Tensor:
            x = self.patch(image).flatten(2).transpose(-1, -2)
            x = x + self.places(self.norm1(x).transpose(-1, -2)).transpose(-1, -2)
            x = x + self.channels(self.norm2(x))
            return self.classes(x.mean(1))

    return Network(Mixer(), {"image": floats("batch", 3, 32, 32)}, BATCHES)


@network
def actor_critic() -> Network:
    """A policy and a value from frames of a game (Mnih et al., 2016)."""

    class Both(Module):
        def __init__(self) -> None:
            super().__init__()
            self.see = nn.Sequential(
                *(nn.Conv2d(4, 16, 8, 4), nn.ReLU(), nn.Conv2d(16, 32, 4, 2), nn.ReLU()),
                *(nn.Flatten(), nn.Linear(32 * 81, 64), nn.ReLU()),
            )
            self.policy, self.value = nn.Linear(64, 6), nn.Linear(64, 1)

        def forward(self, frames: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            x = self.see(frames / 255)
            policy = f.softmax(self.policy(x), -1)
            return policy, self.value(x).squeeze(-1), policy.argmax(-1)

    return Network(Both(), {"frames": unit("batch", 4, 84, 84)}, BATCHES)


@network
def siamese() -> Network:
    """How alike two pictures are."""

    class Twins(Module):
        def __init__(self) -> None:
            super().__init__()
            self.see = nn.Sequential(
                *(nn.Conv2d(1, 8, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 5), nn.ReLU()),
                *(nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(64, 16)),
            )

        def forward(self, one: Tensor, other: Tensor) -> Tensor:
            return f.cosine_similarity(self.see(one), self.see(other))

    picture = floats("batch", 1, 28, 28)
    return Network(Twins(), {"one": picture, "other": picture}, BATCHES)


@network
def kolmogorov_arnold() -> Network:
    """Functions on the edges, sums of bumps (Li, 2024)."""

    class Bumps(Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("places", torch.linspace(-2, 2, 8))
            self.places: Tensor
            self.first, self.second = nn.Linear(5 * 8, 12), nn.Linear(12 * 8, 3)

        def forward(self, x: Tensor) -> Tensor:
            for layer in (self.first, self.second):
                bumps = torch.exp(-(((x[..., None] - self.places) * 2) ** 2))
                x = layer(bumps.flatten(-2)) + f.silu(x).mean(-1, keepdim=True)
            return x

    return Network(Bumps(), {"x": floats("batch", 5)}, BATCHES)
