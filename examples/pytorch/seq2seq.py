"""The twin of `seq2seq.dlm`: sequence to sequence with attention, spelling backwards."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader


class Seq2Seq(nn.Module):
    def __init__(self, V: int = 128, D: int = 32, H: int = 64) -> None:
        super().__init__()
        self.letters = nn.Embedding(V, D)
        self.encoder = nn.GRU(D, H, batch_first=True)
        self.decoder = nn.GRU(D, H, batch_first=True)
        self.score = nn.Linear(H, H, bias=False)
        self.mix = nn.Linear(2 * H, H)
        self.head = nn.Linear(H, V)

    def attend(self, h: Tensor, memory: Tensor) -> Tensor:
        weight = (self.score(h) @ memory.mT).softmax(-1)
        return self.head(torch.tanh(self.mix(torch.cat([h, weight @ memory], -1))))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory, h = self.encoder(self.letters(source))
        before = F.pad(target[:, :-1], (1, 0))
        return self.attend(self.decoder(self.letters(before), h)[0], memory)

    @torch.no_grad()
    def translate(self, source: Tensor) -> Tensor:
        memory, h = self.encoder(self.letters(source))
        id = torch.zeros_like(source[:, :1])
        found = []
        for _ in range(source.shape[1]):
            y, h = self.decoder(self.letters(id), h)
            id = self.attend(y, memory).argmax(-1)
            found.append(id)
        return torch.cat(found, 1)

    def loss(self, ids: Tensor) -> Tensor:
        target = ids.flip(1)
        return F.cross_entropy(self(ids, target).flatten(0, 1), target.flatten())


def main(epochs: int = 5) -> None:
    torch.manual_seed(1)
    with open("examples/data/shakespeare.txt", "rb") as file:
        text = torch.tensor(list(file.read(80_001)))
    windows = text.unfold(0, 9, 8)
    train, test = windows[:9_000], windows[9_000:]
    batches = DataLoader(train, 64, shuffle=True)
    model = Seq2Seq()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: (1 + math.cos(math.pi * step / (epochs * len(batches)))) / 2
    )
    for epoch in range(epochs):
        for ids in batches:
            optimizer.zero_grad()
            loss = model.loss(ids)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1)
            optimizer.step()
            schedule.step()
        right = (model.translate(test) == test.flip(1)).double().mean()
        print(f"epoch {epoch + 1}  loss {loss:.4f}  test_letters_right {right:.4f}")


if __name__ == "__main__":
    main()
