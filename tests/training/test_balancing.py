"""The balance of experts as a part of what is minimised."""

import torch

from polyhead.data.batches.language_model import LanguageBatch
from polyhead.layers.mixture_of_experts import ExpertsConfig, unevenness
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.gpt import GPT, GPTConfig
from polyhead.training.balancing import Balanced, balanced
from polyhead.training.losses import NextTokenLoss

STACK = StackConfig(
    n_layers=2, d_model=16, n_heads=2, d_ff=24, dropout=0.0, norm="pre",
    experts=ExpertsConfig(n=4, k=2, importance=0.3, load=0.7),
)  # fmt: skip


def make(stack):
    torch.manual_seed(0)
    return GPT(GPTConfig(11, 12, stack=stack)).train()


def test_the_mean_is_that_of_the_objective_and_the_balance_of_every_layer():
    model = make(STACK)
    ids = torch.randint(1, 11, (3, 8))
    batch = LanguageBatch(ids[:, :-1], ids[:, 1:])
    heard = []
    hooks = [
        block.feed_forward.gate.register_forward_hook(lambda _, __, routing: heard.append(routing))
        for block in model.stack.blocks
    ]
    torch.manual_seed(1)
    alone = NextTokenLoss()(model, batch)
    torch.manual_seed(1)
    both = Balanced(NextTokenLoss())(model, batch)
    for hook in hooks:
        hook.remove()
    extra = sum(0.3 * unevenness(r.importance) + 0.7 * unevenness(r.load) for r in heard[:2])
    assert extra > 0
    assert both.count == alone.count == 21
    torch.testing.assert_close(both.total / both.count, alone.total / alone.count + extra)


def test_what_is_only_looked_at_is_not_balanced():
    model = make(STACK)
    ids = torch.randint(1, 11, (3, 8))
    batch = LanguageBatch(ids[:, :-1], ids[:, 1:])
    with torch.no_grad():
        torch.manual_seed(1)
        alone = NextTokenLoss()(model, batch)
        torch.manual_seed(1)
        assert torch.equal(Balanced(NextTokenLoss())(model, batch).total, alone.total)


def test_a_model_without_experts_keeps_its_objective():
    objective = NextTokenLoss()
    assert balanced(objective, make(StackConfig(1, 16, 2, 24, norm="pre"))) is objective
    assert balanced(objective, make(STACK)) == Balanced(objective)
