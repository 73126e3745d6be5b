"""Numbers of parameters as the papers or their authors' code give them."""

import pytest
import torch

from polyhead.models.registry import create_model

PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "vit-ti-16": 5_717_416,
    "vit-s-16": 22_050_664,
    "vit-b-16": 86_567_656,
    "vit-b-32": 88_224_232,
    "vit-l-16": 304_326_632,
    "vit-h-14": 632_045_800,
    "transformer-base": pytest.approx(65e6, rel=0.03),  # Vaswani et al. 2017, table 3
    "transformer-big": pytest.approx(213e6, rel=0.03),
    "sutskever": pytest.approx(384e6, rel=0.01),
    "gnmt": pytest.approx(278e6, rel=0.01),  # Shazeer et al. 2017, table 3
    "moe-2048": pytest.approx(8.7e9, rel=0.01),  # the same, tables 2 and 3
    "moe-multilingual": pytest.approx(8.7e9, rel=0.01),  # the same, table 5
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models_have_the_published_numbers_of_parameters(name):
    with torch.device("meta"):
        model = create_model(name)
    assert sum(p.numel() for p in model.parameters()) == PUBLISHED[name]
