"""From a text file to a translation in one straight line: read this first.

Each paragraph below is one room of the house. Run it: it learns to say sentences backwards, in less
than a minute. `polyhead train` does the same with more care (`polyhead/training/trainer.py`).
"""

import random
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from polyhead.checkpoint import atomic_dir as store
from polyhead.checkpoint.model_dir import SavedModel, load_model, write_model
from polyhead.data.batches.base import DataPosition, pad
from polyhead.data.batches.translation import TranslationBatches
from polyhead.data.parallel import read_parallel
from polyhead.data.token_store import TokenSequences
from polyhead.decoding.beam import beam_search
from polyhead.decoding.options import DecodeConfig
from polyhead.layers.attention_hooks import record_attention
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.special_tokens import BOS, PAD
from polyhead.tasks.losses import TranslationLoss
from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.storage import train_tokenizers
from polyhead.training.loop import Progress, TrainConfig, train_loop
from polyhead.training.optim import OptimizerConfig, ScheduleConfig, build_optimizer, learning_rate


def main(folder: Path, steps: int = 400) -> str:
    """Return the whole line; returns what the model makes of one sentence."""
    torch.manual_seed(0)

    # text files: line i of one translates line i of the other
    rng = random.Random(0)
    lines = [" ".join(rng.choices("abcdefghij", k=rng.randint(3, 8))) for _ in range(2000)]
    (folder / "forwards.txt").write_text("\n".join(lines) + "\n")
    (folder / "backwards.txt").write_text("\n".join(line[::-1] for line in lines) + "\n")
    pairs = read_parallel([folder / "forwards.txt"], [folder / "backwards.txt"])

    # text: lines → ids
    tokenizers = train_tokenizers(pairs.sources, pairs.targets, TextConfig(kind="words"))
    source_ids = tokenizers.source.encode_batch(pairs.sources)
    target_ids = tokenizers.target.encode_batch(pairs.targets)
    vocab = len(tokenizers.target)  # of both sides
    train = [TokenSequences.of(ids[200:], vocab) for ids in (source_ids, target_ids)]
    valid = [TokenSequences.of(ids[:200], vocab) for ids in (source_ids, target_ids)]

    # data: ids → batches, in an order that depends on nothing but the seed
    epochs = TranslationBatches(*train, max_tokens=1000, seed=0)
    held_out = TranslationBatches(*valid, max_tokens=1000, seed=0)

    # model: one stack reads, one writes
    stack = StackConfig(n_layers=1, d_model=48, n_heads=4, d_ff=96, dropout=0.0, norm="pre")
    config = TransformerConfig(vocab, vocab, tie="all", stack=stack)
    model = Transformer(config)

    # train: batches → loss → gradients → weights
    objective = TranslationLoss(PAD, smoothing=0.1)
    schedule = ScheduleConfig(kind="linear", rate=5e-3, warmup=50)

    updates = train_loop(
        model,
        objective,
        epochs.batches(DataPosition()),
        build_optimizer(model, OptimizerConfig()),
        partial(learning_rate, schedule, steps=steps, d_model=48),
        TrainConfig(steps=steps),
        Progress(),
    )
    for step, _ in enumerate(updates, start=1):
        if step == steps or step % max(1, steps // 4) == 0:
            model.eval()
            with torch.no_grad():
                losses = [objective(model, held_out[(0, i)]) for i in range(held_out.n_batches(0))]
            score = sum(loss.total.item() for loss in losses) / sum(loss.count for loss in losses)
            print(f"step {step:4d}  loss on held-out sentences {score:.3f}")

    # checkpoint: a folder that explains itself, and back
    saved = SavedModel("transformer", config, model, tokenizers)
    with store.atomic_dir(folder / "backwards") as draft:
        write_model(draft, saved)
    translator = load_model(folder / "backwards").model

    # decode: ids → the best ids → a line
    sentence = "a b c d e f"
    source = pad([tokenizers.source.encode(sentence)])
    best = beam_search(translator, source, replace(DecodeConfig(), beam=4))
    text = tokenizers.target.decode(best.tokens[0, 0].tolist())
    print(f"{sentence!r} → {text!r}")

    # inspect: what did every head look at while it wrote?
    read = torch.cat([torch.tensor([[BOS]]), best.tokens[:1, 0, :-1]], dim=1)
    with record_attention(translator) as maps, torch.no_grad():
        translator(source, read)
    for name, weights in maps.items():
        print(f"{name:38s} {tuple(weights.shape)}  (batch, head, query, key)")
    return text


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
