"""ELECTRA (rows M1 to M7 and M9): replacing tokens and detecting the replaced ones."""

import torch
from torch import nn
from torch.nn import functional as F

from polyhead.cost.counter import count_flops
from polyhead.data.batches.masked import ELECTRA_MASKING as ELECTRAS_SHARES
from polyhead.models.bert import bert_stack
from polyhead.models.electra import SPOTTING_WEIGHT, Electra, ElectraConfig, narrowed
from polyhead.models.text_classifier import Classifier, ClassifierConfig
from polyhead.notes.claims import ClaimResult, claim, close, refusal, same


@claim("M1", Electra.forward)
def replaced_tokens() -> ClaimResult:
    """Count the replaced tokens with a loop, and check that some samples are correct."""
    model = Electra(ElectraConfig(6, 40, stack=bert_stack(1, 16, 2))).eval()
    ids, chosen = torch.randint(0, 5, (8, 40)), torch.rand(8, 40) < 0.3
    out = model(ids, ids.masked_fill(chosen, 5), chosen)
    forged, original = out.forged.flatten().tolist(), ids.flatten().tolist()
    wrong = sum(now != then for now, then in zip(forged, original, strict=True))
    counted = int(out.replaced.sum())
    result = same(expected=f"{wrong} of 320 replaced", got=f"{counted} of 320 replaced")
    return result.if_also(out.suspicion.shape == ids.shape and 0 < wrong < int(chosen.sum()))


@claim("M2", Electra.suspect, Electra)
def both_are_encoders() -> ClaimResult:
    """Replace the last of five tokens and compare the first outputs."""
    model = Electra(ElectraConfig(50, 8, stack=bert_stack(2, 64, 1))).eval()
    ids = torch.randint(1, 49, (1, 5))
    other = torch.cat([ids[:, :4], torch.tensor([[49]])], dim=1)
    moved = [
        not torch.equal(player(ids)[:, 0], player(other)[:, 0])
        for player in (model.generator, model.suspect)
    ]
    return same(expected=[True, True], got=moved)


@claim("M3", ElectraConfig, Electra)
def shared_embeddings() -> ClaimResult:
    """List the parameters that generator and discriminator share."""
    model = Electra(ElectraConfig(50, 8, stack=bert_stack(1, 64, 1)))
    memory = {p.data_ptr() for p in model.generator.encoder.parameters()}
    named = model.discriminator.named_parameters()
    shared = {name.split(".")[0] for name, p in named if p.data_ptr() in memory}
    result = same(expected=["embed"], got=sorted(shared))
    return result.with_note("all", differs=bool(refusal(lambda: ElectraConfig(sharing="all"))))


@claim("M4", Electra.forward)
def rows_with_gradient() -> ClaimResult:
    """Count the rows with a gradient from each loss, and the matrices with one from detecting."""
    model = Electra(ElectraConfig(50, 10, stack=bert_stack(1, 64, 1))).eval()
    ids, chosen = torch.arange(1, 11)[None], torch.arange(10)[None] < 2  # ten different words
    out, table = model(ids, ids.masked_fill(chosen, 49), chosen), model.discriminator.embed.tokens
    fill = F.cross_entropy(out.generated, ids[chosen])
    spot = F.binary_cross_entropy_with_logits(out.suspicion, out.replaced.float())
    rows = [
        int(torch.autograd.grad(loss, table.weight, retain_graph=True)[0].any(1).sum())
        for loss in (fill, spot)
    ]
    matrices = [m.weight for m in model.discriminator.modules() if isinstance(m, nn.Linear)]
    alone = sum(bool(g.any()) for g in torch.autograd.grad(spot, matrices))
    words = out.forged.unique().numel()
    expected = f"50 rows, {words} of them by detecting, {len(matrices)} of {len(matrices)} matrices"
    got = f"{rows[0]} rows, {rows[1]} of them by detecting, {alone} of {len(matrices)} matrices"
    result = same(expected, got)
    return result.with_note(f"0 of {len(matrices)} matrices", differs=alone == len(matrices))


@claim("M5", narrowed, ElectraConfig, Electra.forward)
def weaker_generator() -> ClaimResult:
    """Measure the share of replaced tokens as the generator improves; check its width."""
    model = Electra(ElectraConfig(50, 40, stack=bert_stack(1, 64, 1))).eval()
    ids, chosen = torch.full((8, 40), 7), torch.rand(8, 40) < 0.15
    shares = []
    for strength in (0.0, 4.0, 40.0):  # how much likelier than the others the truth is made
        model.generator.to_logits.bias.data[7] = strength
        shares.append(model(ids, ids.masked_fill(chosen, 49), chosen).replaced.float().mean())
    config = ElectraConfig()
    result = same(
        expected=[64, 12], got=[config.generator.stack.d_model, config.generator.stack.n_layers]
    )
    easier = bool(shares[0] > shares[1] > shares[2] == 0)
    return result.with_note(config.stack.d_model, differs=easier)


@claim("M6", Electra, narrowed)
def twice_the_work() -> ClaimResult:
    """Count the FLOPs of both encoders, in units of the discriminator's."""
    ids = torch.randint(1, 50, (2, 16))

    def work(size: float) -> float:
        config = ElectraConfig(50, 16, d_embed=64, generator_size=size, stack=bert_stack(2, 64, 1))
        model = Electra(config).eval()
        generator = count_flops(lambda: model.generator.encoder(ids))
        return 1 + generator / count_flops(lambda: model.discriminator(ids))

    return close(expected=2.0, got=work(1.0), within=0.001).if_also(work(0.25) < 1.2)


@claim("M7", Electra.forward)
def no_gradient_through_samples() -> ClaimResult:
    """Measure the generator's gradient from the discriminator's loss and from a reward."""
    model = Electra(ElectraConfig(50, 12, sharing="none", stack=bert_stack(1, 64, 1))).eval()
    ids, chosen = torch.randint(1, 49, (4, 12)), torch.rand(4, 12) < 0.4
    out = model(ids, ids.masked_fill(chosen, 49), chosen)
    spot = F.binary_cross_entropy_with_logits(out.suspicion, out.replaced.float())
    log_p = out.generated.log_softmax(-1).gather(1, out.forged[chosen][:, None]).mean()

    def reaches(loss: torch.Tensor) -> float:
        parameters = list(model.generator.parameters())
        grads = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
        return sum((g.abs().sum().item() for g in grads if g is not None), start=0.0)

    reward = reaches(-spot.detach() * log_p)
    return same(expected=0.0, got=reaches(spot)).with_note(reward, differs=reward > 0)


@claim("M9", ElectraConfig, Classifier)
def defaults_of_the_paper() -> ClaimResult:
    """Check λ, the masked share, the generator's size, and the classifier's weights."""
    config = ElectraConfig(50, 8, stack=bert_stack(1, 64, 1))
    electra = Electra(config)
    classifier = Classifier(ClassifierConfig(encoder=config.discriminator))
    missing = classifier.encoder.load_state_dict(electra.discriminator.state_dict(), strict=False)
    got = [SPOTTING_WEIGHT, ELECTRAS_SHARES.share, config.generator_size, len(missing.missing_keys)]
    return same(expected=[50.0, 0.15, 0.25, 0], got=got)
