"""How good a model is by now: loss and BLEU on sentences that it is not trained on."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from polyhead.api.session import Session
from polyhead.checkpoint import store
from polyhead.decode.many import decode_all
from polyhead.decode.options import DecodeConfig
from polyhead.evaluate.score import quick_bleu
from polyhead.text.tokenizer import PAD
from polyhead.train.loop import Progress
from polyhead.train.objectives import Translation

SAMPLES = "samples"


@torch.inference_mode()
def validate(session: Session, progress: Progress) -> float:
    """Loss on the whole validation set, BLEU on its first sentences; lower is better."""
    config = session.run.train
    loss = valid_loss(session)
    metrics: dict[str, Any] = {"loss": loss, "perplexity": math.exp(min(700.0, loss))}
    if config.bleu_sentences:
        outputs = translate_quickly(session)
        metrics["bleu"] = quick_bleu(outputs, session.samples[1])
        _write_samples(session, progress.step, outputs)
    session.journal.record("valid", progress.step, metrics)
    session.journal.reporter.notice(
        "  ".join([f"step {progress.step:,}", *(f"{k} {v:.3f}" for k, v in metrics.items())])
    )
    session.metrics = metrics
    return -float(metrics["bleu"]) if config.judge_by == "bleu" else loss


def valid_loss(session: Session) -> float:
    """The mean loss per token, without label smoothing and without dropout."""
    model = session.model.eval()
    device = next(model.parameters()).device
    objective, total, count = Translation(PAD), 0.0, 0
    for batch in session.valid:
        loss = objective(model, batch.to(device))
        total, count = total + loss.total.item(), count + loss.count
    return total / count


def translate_quickly(session: Session) -> list[str]:
    """Greedy translations of the first validation sentences."""
    ids = session.tokenizers.source.encode_batch(session.samples[0])
    device = next(session.model.parameters()).device
    outputs = decode_all(session.model, ids, DecodeConfig(beam=1), device=device)
    return [session.tokenizers.target.decode(best[0].ids) for best in outputs]


def _write_samples(session: Session, step: int, outputs: Sequence[str]) -> None:
    """What the model says by now, beside what it should say."""
    place = session.folder / SAMPLES
    triples = zip(*session.samples, outputs, strict=True)
    text = "\n".join(f"{source}\n  = {right}\n  > {said}" for source, right, said in triples)
    with store.explained(place):
        place.mkdir(exist_ok=True)
    store.write_text(place / f"step-{step:08d}.txt", text + "\n")
