"""The eager module that the Python peers train, with the parameter names of `dslaunch model new
gpt`, filled from an archive."""

import torch
import torch.nn.functional as F
from torch import nn

HEADS = {"tiny": 4, "small": 8, "medium": 16}


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = (
            self.qkv(self.ln1(x))
            .view(batch, length, 3, self.heads, width // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        mixed = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.out(F.gelu(self.fc(self.ln2(x))))


class Gpt(nn.Module):
    def __init__(self, vocabulary, width, heads, layers, context):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens, targets):
        h = self.wte(tokens) + self.wpe(torch.arange(tokens.size(1), device=tokens.device))
        for block in self.blocks:
            h = block(h)
        return F.cross_entropy(self.head(self.ln_f(h)).flatten(0, 1), targets.flatten())


def from_archive(path, size):
    """The eager twin of the archive; the sizes are read off its parameters. SIZE: a name of HEADS,
    or a number of heads. Fails if it does not compute the same loss."""
    archive = torch.jit.load(str(path))
    state = archive.state_dict()
    vocabulary, width = state["wte.weight"].shape
    layers = sum(name.startswith("blocks.") and name.endswith(".ln1.weight") for name in state)
    model = Gpt(vocabulary, width, HEADS.get(size, size), layers, state["wpe.weight"].shape[0])
    model.load_state_dict(state)
    tokens = torch.arange(32).view(2, 16) * 7 % vocabulary
    with torch.no_grad():
        expected, loss = archive(tokens, tokens).item(), model(tokens, tokens).item()
    if abs(expected - loss) > 1e-4:
        raise SystemExit(
            f"{path}: its loss is {expected}, that of the eager module {loss}: not the same network"
        )
    return model
