"""Compares sharded models of all families with whole ones; `torchrun` starts it as a script."""

import copy
import math
from dataclasses import replace

import torch
from small_models import (
    BYTENET,
    CONVS2S,
    LADDER,
    PAD,
    RECURRENT,
    REFORMER,
    STACK,
    VOCAB,
    make,
)

from polyhead.data.batches.images import ImageBatch
from polyhead.data.batches.labelled import TextBatch
from polyhead.data.batches.language_model import LanguageBatch
from polyhead.data.batches.masked import MaskedBatch
from polyhead.data.batches.translation import TranslationBatch
from polyhead.decoding.batch import decode_all
from polyhead.decoding.options import DecodeConfig
from polyhead.layers.lsh.attention import LSHConfig
from polyhead.models import registry as models
from polyhead.tasks.losses import (
    ClassificationLoss,
    MaskedTokenLoss,
    NextTokenLoss,
    ReplacedTokenLoss,
    SoftLabelLoss,
    TranslationLoss,
)
from polyhead.training.loop import (
    TrainConfig,
    accumulate,
    accumulate_sharded,
    average_and_clip,
)
from polyhead.training.optim import OptimizerConfig, build_optimizer
from polyhead.training.processes import join_processes
from polyhead.training.sharding import call_collected, shard

CPU = torch.device("cpu")
SEEDS = [11, 12, 13, 14]
RANDOM = replace(STACK, dropout=0.2, attention_dropout=0.1)
PRE = replace(RANDOM, norm="pre")
REVERSIBLE = replace(REFORMER, lsh=LSHConfig(chunk=4), dropout=0.2)
BERT = models.BERTConfig(VOCAB, 12, stack=RANDOM)
ELECTRA = models.ElectraConfig(VOCAB, 12, d_embed=8, generator_size=0.5, stack=PRE)
CONFIGS = {
    "transformer": models.TransformerConfig(VOCAB, VOCAB, stack=RANDOM),
    "untied": models.TransformerConfig(VOCAB, VOCAB, stack=PRE, tie="none", output_bias=True),
    "hashed": models.TransformerConfig(VOCAB, VOCAB, stack=PRE, encoder_attention="lsh"),
    "reversible": models.TransformerConfig(VOCAB, VOCAB, stack=replace(PRE, reversible=True)),
    "gpt": models.GPTConfig(VOCAB, 12, stack=PRE),
    "reformer": models.ReformerConfig(VOCAB, max_length=12, stack=REVERSIBLE),
    "bert": BERT,
    "electra": ELECTRA,
    "electra shared": replace(ELECTRA, sharing="all", generator_size=1.0),
    "classifier": models.ClassifierConfig(3, encoder=BERT),
    "vit": models.ViTConfig(height=8, width=8, channels=1, classes=3, patch=4, stack=PRE),
    "convs2s": CONVS2S,
    "bytenet": BYTENET,
    **{name: RECURRENT[name] for name in ("bridge", "bahdanau", "luong local_p", "gnmt past")},
    "ladder": LADDER["ladder query gru"],
}


def make_batch(task, length):
    """Return a random batch of a task, and its objective."""
    ids = torch.randint(4, VOCAB, (3, length))
    ids[0, length // 2 :] = PAD
    if task == "translation":
        return TranslationBatch(ids.flip(0), ids, ids.roll(1, 0)), TranslationLoss(PAD, 0.1)
    if task == "language_modeling":
        return LanguageBatch(ids[1:], ids[1:].roll(1, 1)), NextTokenLoss()
    if task == "text_classification":
        return TextBatch(ids, torch.tensor([0, 1, 2])), ClassificationLoss()
    if task == "image_classification":
        return ImageBatch(torch.rand(3, 1, 8, 8), torch.eye(3), 5), SoftLabelLoss()
    chosen = (torch.rand(3, length) < 0.5) & (ids != PAD)
    chosen[1, 0] = True
    batch = MaskedBatch(ids, ids.masked_fill(chosen, 3), chosen, 2.0)
    return batch, MaskedTokenLoss() if task == "masked_lm" else ReplacedTokenLoss(PAD)


def evaluate(task, objective, batch, model):
    """Return loss and outputs of a model in evaluation mode."""
    torch.manual_seed(5)
    with torch.inference_mode():
        loss = objective(model, batch).total.item()
        if task != "translation":
            return loss
        sources = [[7, 8, 2], [9, 10, 5, 2]]
        decoded = decode_all(model, sources, DecodeConfig(beam=1), device=CPU)
        return loss, [best[0].ids for best in decoded]


def compare(name, processes):
    """Assert that loss, gradients and outputs are those of the whole model, for two updates."""
    config = CONFIGS[name]
    task = next(f.task for f in models.FAMILIES.values() if f.config is type(config))
    torch.manual_seed(3)
    whole, options = make(config), TrainConfig()
    batches, objectives = zip(*(make_batch(task, length) for length in (8, 6, 7, 9)), strict=True)
    objective, own = objectives[0], processes.share_of(4)
    part = copy.deepcopy(whole)
    trained = shard(part, CPU, processes)
    optimizers = [build_optimizer(m, OptimizerConfig(epsilon=1e-3)) for m in (whole, part)]
    for _ in range(2):
        expected = evaluate(task, objective, batches[0], whole.eval())
        found = call_collected(
            trained.eval(), part, lambda model: evaluate(task, objective, batches[0], model)
        )
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        whole.train(), trained.train()
        summed = accumulate(whole, objective, list(batches), options, SEEDS)
        mine = accumulate_sharded(
            trained, objective, [batches[i] for i in own], options, [SEEDS[i] for i in own]
        )
        total = processes.add_up(list(part.parameters()), mine)
        torch.testing.assert_close(tuple(total), tuple(summed), rtol=1e-5, atol=0)
        pairs = list(zip(whole.named_parameters(), part.parameters(), strict=True))
        for (label, parameter), sharded in pairs:
            gradient = None if sharded.grad is None else sharded.grad.full_tensor()
            torch.testing.assert_close(
                gradient, parameter.grad, rtol=1e-4, atol=1e-5, msg=lambda m, n=label: f"{n}: {m}"
            )
        count = summed.predictions
        norms = [
            average_and_clip(list(whole.parameters()), count, 0.5),
            average_and_clip(list(part.parameters()), count, 0.5, processes),
        ]
        torch.testing.assert_close(*norms, rtol=1e-5, atol=0)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = 0.01
            optimizer.step()
            optimizer.zero_grad()
    check_share(whole, part, optimizers[1], processes.world)


def check_share(whole, part, optimizer, world):
    """Assert that this process holds its share of the rows of all weights and moments."""
    for parameter, sharded in zip(whole.parameters(), part.parameters(), strict=True):
        most = math.ceil(len(parameter) / world) * parameter[0].numel()
        moments = [t for t in optimizer.state[sharded].values() if t.dim()]
        assert all(t.to_local().numel() <= most for t in (sharded, *moments))


def main():
    with join_processes() as processes:
        for name in CONFIGS:
            processes.in_step = False
            compare(name, processes)
            if processes.is_first:
                print(f"equal: {name}", flush=True)


if __name__ == "__main__":
    main()
