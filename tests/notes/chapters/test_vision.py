"""Claims about the Vision Transformer fail when a part of it is broken."""

import torch
from claims import ClaimBreaks
from torch.nn import functional as F

from polyhead.models import vit

breaks = ClaimBreaks("vision")


@breaks(vit.PatchEmbed, "forward", at_least="L1 L4 L5")
def patches_read_by_columns(self, images):
    return self.project(images).transpose(2, 3).flatten(2).transpose(1, 2)


@breaks(vit, "cut", exactly="L5")
def remainder_dropped(height, width, patch):
    return height // patch, width // patch


@breaks(vit.ViT, "places", exactly="L2 L4")
def positions_of_zero(self, grid):
    return torch.zeros(grid[0] * grid[1] + int(self.class_token is not None), 64)


@breaks(vit.ViT, "forward", exactly="L4")
def last_token_instead_of_class_token(self, images):
    return self.to_logits(self.hidden(images)[:, -1])


@breaks(torch.nn.GELU, "forward", exactly="L4")
def relu_instead_of_gelu(_, x):
    return F.relu(x)


test_breaks_are_detected = breaks.test()
