"""Training (rows H3, H4, H8, H9): what the decoder reads, what it is told, and how fast to learn.

read      BOS y_1 … y_{T-1}
predict   y_1 y_2 … y_T           loss = -Σ log softmax(logits_t)[y_t]
"""

import torch
from torch.nn import functional as F

from polyhead.data.batches.translation import collate
from polyhead.decoding.config import DecodeConfig
from polyhead.decoding.sampling import greedy
from polyhead.i18n import Words
from polyhead.layers.cross_entropy import linear_cross_entropy
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.notes.claims import Finding, check, close, same
from polyhead.training.losses import TranslationLoss
from polyhead.training.schedule import ScheduleConfig, learning_rate, noam


@check(
    "H3",
    claim=Words(
        "Linear, softmax, loss, gradient: the recipe of the decoder",
        "선형층, 소프트맥스, 손실, 역전파: 디코더의 순서",
    ),
    formula="loss = -Σ_t log softmax(h_t Wᵀ)[y_t]",
    explain=Words(
        "The note's recipe ends with a linear layer, a softmax, probabilities and a loss. "
        "Programs compute the logarithm of the softmax straight from the logits, because "
        "probabilities round to zero. The library does so piece by piece, without ever holding "
        "all logits; loss and gradient are those of torch.",
        "노트의 순서는 선형층, 소프트맥스, 확률, 손실로 끝난다. 확률은 반올림되어 0이 될 수 "
        "있으므로 프로그램은 logit에서 곧바로 로그 소프트맥스를 계산한다. 라이브러리는 logit "
        "전체를 한 번에 들고 있지 않고 조각조각 계산하며, 손실과 기울기는 torch의 값과 같다.",
    ),
    code=(TranslationLoss, linear_cross_entropy),
)
def the_loss() -> Finding:
    """The objective's loss and its gradient against torch's cross-entropy of all real labels."""
    model = Transformer(TransformerConfig(9, 9, stack=StackConfig(1, 16, 2, 32))).eval()
    batch = collate([([3, 4, 2], [5, 6, 2]), ([7, 8, 3, 2], [8, 2])])
    logits = model(batch.source, batch.target)
    theirs = F.cross_entropy(logits.transpose(1, 2), batch.labels, ignore_index=0, reduction="sum")
    ours = TranslationLoss(pad=0)(model, batch)
    lengths = []
    for loss in (theirs, ours.total):
        model.zero_grad()
        loss.backward()
        gradients = [p.grad.norm() for p in model.parameters() if p.grad is not None]
        lengths.append(torch.stack(gradients).norm().item())
    expected, got = [theirs.item(), lengths[0], 5], [ours.total.item(), lengths[1], ours.count]
    return close(expected=expected, got=got, within=1e-5)


@check(
    "H4",
    claim=Words(
        "The decoder reads its own output, shifted right by one",
        "디코더의 입력은 출력을 오른쪽으로 한 칸 민 것이다",
    ),
    formula="input_t = label_{t-1},   input_1 = BOS",
    explain=Words(
        "For the target 7 8 9 EOS the decoder reads BOS 7 8 9 and has to say 7 8 9 EOS: at every "
        "place the next token. BOS is 1, EOS is 2 and padding is 0; where the label is padding "
        "nothing is learned.",
        "타깃이 7 8 9 EOS라면 디코더는 BOS 7 8 9를 읽고 7 8 9 EOS를 말해야 한다. 자리마다 다음 "
        "토큰을 맞히는 것이다. BOS는 1, EOS는 2, 패딩은 0이고, 정답이 패딩인 자리에서는 아무것도 "
        "배우지 않는다.",
    ),
    code=(collate,),
)
def shifted_right() -> Finding:
    """A target of four tokens and one of two."""
    batch = collate([([5, 6, 2], [7, 8, 9, 2]), ([5, 2], [7, 2])])
    read = [[1, 7, 8, 9], [1, 7, 0, 0]]
    said = [[7, 8, 9, 2], [7, 2, 0, 0]]
    return same(expected=[read, said], got=[batch.target.tolist(), batch.labels.tolist()])


@check(
    "H8",
    claim=Words(
        "The rate rises for 4,000 steps, then falls as 1/√step",
        "학습률은 4,000스텝 동안 오르고 그 뒤 1/√step으로 내려간다",
    ),
    formula="lr = d_model^-0.5 · min(step^-0.5, step · warmup^-1.5)",
    explain=Words(
        "For the base model (512 and 4,000 steps of warm-up) the rate is 1.74693e-7 at step 1, "
        "6.98771e-4 at its peak and 1.39754e-4 at step 100,000. Steps count from 1, because "
        "0^-0.5 is a division by zero; a step 0 is taken for the first.",
        "기본 모델(512차원, 워밍업 4,000스텝)의 학습률은 1스텝에서 1.74693e-7, 꼭대기에서 "
        "6.98771e-4, 100,000스텝에서 1.39754e-4이다. 0^-0.5는 0으로 나누는 것이므로 스텝은 1부터 "
        "세고, 0은 첫 스텝으로 친다.",
    ),
    code=(noam, learning_rate),
)
def warm_up() -> Finding:
    """The rates at steps 0, 1, 4,000 and 100,000, and the step at which they are highest."""
    config = ScheduleConfig(kind="noam", warmup=4000)
    steps = [*range(8001), 100_000]
    rates = {step: learning_rate(config, step, steps=100_000, d_model=512) for step in steps}
    got = [float(f"{rates[step]:.5e}") for step in (0, 1, 4000, 100_000)]
    expected = [1.74693e-7, 1.74693e-7, 6.98771e-4, 1.39754e-4, "peak at 4000"]
    return same(
        expected=expected, got=[*got, f"peak at {max(rates, key=lambda step: rates[step])}"]
    )


@check(
    "H9",
    claim=Words(
        "Training reads all words at once; decoding stays sequential",
        "학습은 모든 단어를 한 번에 처리하지만 디코딩은 여전히 차례대로다",
    ),
    formula="12 words:  training 1 pass,  decoding 12 passes",
    explain=Words(
        "The note is right about training, where the whole target is known. When the model "
        "writes, every word waits for the one before it. Counted here is how often the decoder "
        "runs for twelve words. (The log of a training run shows its tokens per second.)",
        "타깃 전체를 아는 학습에 대해서는 노트가 맞다. 모델이 직접 쓸 때는 단어마다 바로 앞 "
        "단어를 기다려야 한다. 여기서는 단어 열두 개에 디코더가 몇 번 도는지 센다. (학습 기록에는 "
        "초당 토큰 수가 나온다.)",
    ),
    code=(Transformer.forward, Transformer.step, greedy),
)
def passes_of_the_decoder() -> Finding:
    """How many words each call of the decoder reads: in training, and when they are written."""
    model = Transformer(TransformerConfig(9, 9, stack=StackConfig(1, 16, 2, 32))).eval()
    source, target = torch.tensor([[3, 4, 2]]), torch.full((1, 12), 5)
    words: list[int] = []  # in each call
    model.decoder.register_forward_pre_hook(lambda _, inputs: words.append(inputs[0].size(1)))
    model(source, target)
    in_training = list(words)
    greedy(model, source, DecodeConfig(max_length=12), prefix=target)  # written as it stands there
    return same(expected=[[12], [1] * 12], got=[in_training, words[len(in_training) :]])
