"""Models as users write them, with forwards of their own, for the tests of capture() and measure()."""

from torch_jobs import LENGTH, WIDTH, WORDS, Block, torch

nn = torch.nn


class Gpt(nn.Module):
    def __init__(self, blocks, tied=False):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(blocks)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def gpt_batch(samples, length=LENGTH):
    torch.manual_seed(samples)
    return torch.randint(WORDS, (samples, length)), torch.randint(WORDS, (samples, length))


class Basic(nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.norm2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.down = None
        if channels != out:
            self.down = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        return self.relu(y + (x if self.down is None else self.down(x)))


class Residual(nn.Module):
    """A small ResNet."""

    def __init__(self, channels=8, classes=10):
        super().__init__()
        wide = 2 * channels
        self.stem, self.norm = nn.Conv2d(3, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = nn.Sequential(Basic(channels, channels, 1), Basic(channels, channels, 1))
        self.layer2 = nn.Sequential(Basic(channels, wide, 2), Basic(wide, wide, 1))
        self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(wide, classes)

    def forward(self, images):
        x = self.relu(self.norm(self.stem(images)))
        x = self.layer2(self.layer1(x))
        return self.fc(torch.flatten(self.pool(x), 1))


def residual_batch(samples):
    torch.manual_seed(samples)
    return torch.randn(samples, 3, 16, 16), torch.randint(10, (samples,))
