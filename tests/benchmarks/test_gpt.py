"""The comparisons of language models: the peer computes what we compute, the text is cut right."""

import gpt
import peers_gpt
import pytest
import torch

from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.gpt import GPT, GPTConfig

STACK = StackConfig(2, 16, 4, 32, dropout=0.0, norm="pre", activation="gelu_tanh")


@pytest.fixture
def plays(tmp_path, monkeypatch):
    """A text in the place of the plays; a tenth of it begins in the middle of a line."""
    text = "".join(f"Line {n}, to be or not to be.\n" for n in range(100))
    (tmp_path / "tinyshakespeare").mkdir()
    (tmp_path / "tinyshakespeare" / "input.txt").write_text(text)
    monkeypatch.setenv("POLYHEAD_DATA", str(tmp_path))
    return text


def test_the_plain_model_with_our_weights_gives_our_logits_and_gradients():
    config = GPTConfig(23, 12, "learned", stack=STACK)
    ours = GPT(config)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    plain = peers_gpt.to_plain(ours, config)
    ids, labels = torch.randint(0, 23, (2, 3, 12))
    torch.testing.assert_close(plain(ids), ours(ids), rtol=1e-4, atol=1e-5)
    count = sum(p.numel() for p in ours.parameters())
    assert sum(p.numel() for p in plain.parameters()) == count
    plain(ids, labels).backward()
    torch.nn.functional.cross_entropy(ours(ids).flatten(0, 1), labels.flatten()).backward()
    torch.testing.assert_close(
        plain.tokens.weight.grad, ours.embed.tokens.weight.grad, rtol=1e-3, atol=1e-5
    )


@pytest.mark.usefixtures("plays")
def test_quick_runs_print_their_tables(tmp_path, capsys):
    words = ["quality", "--quick", "--runs", str(tmp_path / "runs"), "--seeds", "1", "2"]
    assert gpt.main(words) == 0
    printed = capsys.readouterr().out
    assert printed.count("| gpt-shakespeare-small |") == 2
    assert "nats per character, 2 seeds" in printed
    assert gpt.main(["speed", "--quick", "--rounds", "1", "--steps", "1"]) == 0
    assert "| plain PyTorch |" in capsys.readouterr().out
    # without oneDNN, whose 16-bit products crash on machines that promise AMX and lack it
    with torch.backends.mkldnn.flags(enabled=False):
        assert gpt.main(["speed", "--quick", "--rounds", "1", "--steps", "1", "--bf16"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("| plain PyTorch, bf16 |") == printed.count("| polyhead, bf16 |") == 2
