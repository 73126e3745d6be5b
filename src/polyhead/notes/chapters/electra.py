"""ELECTRA (rows M1 to M7 and M9): forging tokens and spotting forgeries.

M8 (what a GAN is) is background; the difference to ELECTRA is computed in M7.
"""

import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from polyhead.data.batches.masking import ELECTRA as ELECTRAS_SHARES
from polyhead.i18n import Words
from polyhead.models.bert import bert_stack
from polyhead.models.electra import SPOTTING_WEIGHT, Electra, ElectraConfig, narrowed
from polyhead.models.text_classifier import Classifier, ClassifierConfig
from polyhead.notes.claims import Finding, check, close, same


@check(
    "M1",
    claim=Words(
        "The second player says of every token whether it was replaced",
        "판별자는 모든 토큰에 대해 바뀌었는지를 판단한다",
    ),
    formula="label_t = [x̂_t ≠ x_t], for all t",
    explain=Words(
        "The generator draws a token for each mask. If it happens to draw the true one, the token "
        "counts as original: what is asked is not where a mask was, but what is wrong now. With "
        "five words, about one draw in five is a hit; the labels are compared with a loop over "
        "all tokens.",
        "생성자는 마스크마다 토큰을 하나 뽑는다. 우연히 원래 토큰을 뽑으면 원본으로 친다. 묻는 "
        "것은 마스크가 있던 자리가 아니라 지금 틀린 자리다. 단어가 다섯뿐이면 다섯 번에 한 번쯤 "
        "맞는다. 레이블을 모든 토큰을 도는 반복문과 비교한다.",
    ),
    code=(Electra.forward,),
)
def replaced_or_original() -> Finding:
    """Count the forgeries by hand, and that some draws hit the truth."""
    model = Electra(ElectraConfig(6, 40, stack=bert_stack(1, 16, 2))).eval()
    ids, chosen = torch.randint(0, 5, (8, 40)), torch.rand(8, 40) < 0.3
    out = model(ids, ids.masked_fill(chosen, 5), chosen)
    wrong = sum(
        int(now != then) for row, text in zip(out.forged.tolist(), ids.tolist(), strict=True)
        for now, then in zip(row, text, strict=True)
    )  # fmt: skip
    found = same(
        expected=f"{wrong} of 320 replaced", got=f"{int(out.replaced.sum())} of 320 replaced"
    )
    every_token = out.suspicion.shape == ids.shape and 0 < wrong < int(chosen.sum())
    return found if every_token else Finding("fewer than masked", found.got, False)


@check(
    "M2",
    claim=Words(
        "Both players are Transformer encoders: they see both sides",
        "생성자와 판별자 모두 양쪽을 보는 트랜스포머 인코더다",
    ),
    formula="∂ output_1 / ∂ x_n ≠ 0",
    explain=Words(
        "An encoder reads the whole text at once; a decoder would see only what came before. So "
        "the last token must matter for what either player says about the first.",
        "인코더는 글 전체를 한 번에 읽고, 디코더라면 앞의 것만 볼 것이다. 따라서 마지막 토큰은 두 "
        "모델이 첫 토큰에 대해 말하는 것에 영향을 주어야 한다.",
    ),
    code=(Electra.suspect, Electra),
)
def both_are_encoders() -> Finding:
    """Replace the last of five tokens, and look at the first output of each."""
    model = Electra(ElectraConfig(50, 8, stack=bert_stack(2, 64, 1))).eval()
    ids = torch.randint(1, 49, (1, 5))
    other = torch.cat([ids[:, :4], torch.tensor([[49]])], dim=1)
    moved = [
        not torch.equal(player(ids)[:, 0], player(other)[:, 0])
        for player in (model.generator, model.suspect)
    ]
    return same(expected=[True, True], got=moved)


@check(
    "M3",
    note="imprecise",
    claim=Words(
        "The players share their embeddings; sharing all gains 0.1 more",
        "임베딩만 공유한다. 전부 공유해도 0.1점만 더 오른다",
    ),
    formula="GLUE: none 83.6, embeddings 84.3, all 84.4",
    explain=Words(
        "The note says that sharing all weights was best. By a tenth of a point, and only if both "
        "players have the same size, which is twice the work. Since the generator is to be small, "
        "ELECTRA shares the embeddings alone, and sharing all is refused for players of different "
        "sizes.",
        "노트는 모든 가중치를 공유할 때가 가장 좋았다고 한다. 차이는 0.1점이고, 두 모델의 크기가 "
        "같을 때만 가능하며 계산은 두 배가 된다. 생성자는 작아야 하므로 ELECTRA는 임베딩만 "
        "공유하고, 크기가 다른데 모두 공유하려 하면 거절한다.",
    ),
    code=(ElectraConfig, Electra),
)
def shared_embeddings() -> Finding:
    """Which parameters of the two players are the same memory."""
    model = Electra(ElectraConfig(50, 8, stack=bert_stack(1, 64, 1)))
    memory = {p.data_ptr() for p in model.generator.encoder.parameters()}
    named = model.discriminator.named_parameters()
    shared = {name.split(".")[0] for name, p in named if p.data_ptr() in memory}
    found = same(expected=["embed"], got=sorted(shared))
    try:
        ElectraConfig(sharing="all")
    except ValueError:
        return found.but_noted("all", differs=True)
    return found.but_noted("all", differs=False)


@check(
    "M4",
    claim=Words(
        "The generator's softmax trains every row of the embedding",
        "생성자의 소프트맥스는 임베딩의 모든 행을 학습시킨다",
    ),
    formula="∂L_fill / ∂E[v] ≠ 0 for all v;   ∂L_spot / ∂E[v] ≠ 0 only for v in the text",
    explain=Words(
        "A softmax pushes the right word up and every other word down, so each row of the table "
        "gets a gradient at every step. The discriminator has no softmax: it touches only the "
        "words that it reads. That is why sharing the table helps it.",
        "소프트맥스는 정답 단어를 올리고 나머지를 모두 내리므로 표의 모든 행이 매번 기울기를 "
        "받는다. 판별자에는 소프트맥스가 없어서 읽은 단어의 행만 건드린다. 그래서 표를 공유하면 "
        "판별자에 도움이 된다.",
    ),
    code=(Electra.forward,),
)
def rows_that_learn() -> Finding:
    """How many of 50 rows get a gradient from each loss; the text has ten different words."""
    model = Electra(ElectraConfig(50, 10, stack=bert_stack(1, 64, 1))).eval()
    ids, chosen = torch.arange(1, 11)[None], torch.arange(10)[None] < 2
    out, table = model(ids, ids.masked_fill(chosen, 49), chosen), model.discriminator.embed.tokens
    fill = F.cross_entropy(out.generated, ids[chosen])
    spot = F.binary_cross_entropy_with_logits(out.suspicion, out.replaced.float())
    rows = [
        int(torch.autograd.grad(loss, table.weight, retain_graph=True)[0].any(1).sum())
        for loss in (fill, spot)
    ]
    return same(expected=[50, out.forged.unique().numel()], got=rows)


@check(
    "M5",
    note="wrong",
    claim=Words(
        "A generator that is too good leaves nothing to be spotted",
        "생성자가 너무 강하면 판별자가 찾아낼 것이 없다",
    ),
    formula="P(x̂ ≠ x) → 0 as p_G(x) → 1;   width of G = width of D / 4",
    explain=Words(
        "The note says that with equal sizes the discriminator becomes too strong. It is the "
        "generator: the better it guesses, the fewer tokens are wrong and the less there is to "
        "learn from, and the discriminator may model the generator instead of the language. A "
        "quarter to a half of its width is best; the default is a quarter.",
        "노트는 크기가 비슷하면 판별자가 너무 강해진다고 한다. 강해지는 것은 생성자다. 잘 "
        "맞힐수록 틀린 토큰이 줄어 배울 것이 없어지고, 판별자가 언어가 아니라 생성자를 모델링할 "
        "수 있다. 폭은 판별자의 1/4에서 1/2이 가장 좋고, 기본값은 1/4이다.",
    ),
    code=(narrowed, ElectraConfig, Electra.forward),
)
def a_weaker_generator() -> Finding:
    """The share of forgeries as the generator gets better; and its width by default."""
    model = Electra(ElectraConfig(50, 40, stack=bert_stack(1, 64, 1))).eval()
    ids, chosen = torch.full((8, 40), 7), torch.rand(8, 40) < 0.15
    shares = []
    for strength in (0.0, 4.0, 40.0):  # how much likelier than the others the truth is made
        model.generator.to_logits.bias.data[7] = strength
        shares.append(model(ids, ids.masked_fill(chosen, 49), chosen).replaced.float().mean())
    config = ElectraConfig()
    sizes = config.generator.stack.d_model, config.generator.stack.n_layers
    found = same(expected=[64, 12], got=list(sizes))
    easier = bool(shares[0] > shares[1] > shares[2] == 0)
    return found.but_noted(config.stack.d_model, differs=easier)


@check(
    "M6",
    claim=Words(
        "Two networks of the same size are twice the work",
        "같은 크기의 네트워크 두 개는 계산이 두 배다",
    ),
    formula="(C_G + C_D) / C_D = 2 for equal sizes",
    explain=Words(
        "Torch counts the operations of one forward pass through both encoders. With equal sizes "
        "the sum is twice that of the discriminator; with a generator of a quarter of the width, "
        "only a little more than the discriminator alone.",
        "torch가 두 인코더의 순전파 연산 수를 센다. 크기가 같으면 합이 판별자의 두 배이고, "
        "생성자의 폭이 1/4이면 판별자 하나보다 조금 많을 뿐이다.",
    ),
    code=(Electra, narrowed),
)
def twice_the_work() -> Finding:
    """Operations of both encoders, in units of the discriminator's."""
    ids = torch.randint(1, 50, (2, 16))

    def work(size: float) -> float:
        config = ElectraConfig(50, 16, d_embed=64, generator_size=size, stack=bert_stack(2, 64, 1))
        model, counts = Electra(config).eval(), []
        for player in (model.generator.encoder, model.discriminator):
            with FlopCounterMode(display=False) as counter:
                player(ids)
            counts.append(counter.get_total_flops())
        return sum(counts) / counts[1]

    quarter = work(0.25)
    found = close(expected=2.0, got=work(1.0), within=0.001)
    return found if quarter < 1.2 else Finding("< 1.2 for a quarter", f"{quarter:.2f}", False)


@check(
    "M7",
    note="wrong",
    claim=Words(
        "The generator is trained by likelihood, not by deceiving",
        "생성자는 속이려고가 아니라 최대우도로 학습된다",
    ),
    formula="∂L_spot / ∂θ_G = 0",
    explain=Words(
        "The note concludes that the two networks are trained adversarially, as in a GAN. They are "
        "not: the generator only learns to guess the masked words, and no gradient of the second "
        "loss passes through its draws. The authors tried to reward deception instead, by policy "
        "gradients, and it worked less well; that gradient is shown as the note's.",
        "노트는 두 네트워크를 GAN처럼 적대적으로 훈련했다고 결론짓는다. 그렇지 않다. 생성자는 "
        "가려진 단어를 맞히는 것만 배우고, 판별자 손실의 기울기는 뽑기를 통과하지 못한다. "
        "저자들은 속이는 것을 정책 기울기로 보상하는 방법도 시도했지만 성능이 더 낮았다. 그 "
        "기울기를 노트의 값으로 보인다.",
    ),
    code=(Electra.forward,),
)
def no_gradient_through_the_draw() -> Finding:
    """The gradient that reaches the generator from the spotting loss, and from a reward."""
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
    return same(expected=0.0, got=reaches(spot)).but_noted(reward, differs=reward > 0)


@check(
    "M9",
    claim=Words(
        "L = L_fill + 50 L_spot, 15 % masked; the discriminator is kept",
        "L = L_fill + 50 L_spot, 마스크 15%, 판별자만 남긴다",
    ),
    formula="min Σ L_MLM(x, θ_G) + λ L_Disc(x, θ_D),   λ = 50",
    explain=Words(
        "The note gives no loss. It is a sum of two likelihoods; the weight of 50 makes up for a "
        "yes or no being worth far less than one word out of thousands. For fine-tuning the "
        "generator is dropped: a classifier takes over the discriminator's weights, all of them.",
        "노트에는 손실이 없다. 두 우도의 합이며, 예/아니오 하나의 정보량이 수만 단어 가운데 "
        "하나를 맞히는 것보다 훨씬 작으므로 50을 곱한다. 미세 조정 때는 생성자를 버리고, 분류기가 "
        "판별자의 가중치를 모두 물려받는다.",
    ),
    code=(ElectraConfig, Classifier),
)
def defaults_of_the_paper() -> Finding:
    """λ, the masked share and the generator's size by default; and what a classifier takes over."""
    config = ElectraConfig(50, 8, stack=bert_stack(1, 64, 1))
    electra, classifier = (
        Electra(config),
        Classifier(ClassifierConfig(encoder=config.discriminator)),
    )
    missing = classifier.encoder.load_state_dict(electra.discriminator.state_dict(), strict=False)
    got = [SPOTTING_WEIGHT, ELECTRAS_SHARES.share, config.generator_size, len(missing.missing_keys)]
    return same(expected=[50.0, 0.15, 0.25, 0], got=got)
