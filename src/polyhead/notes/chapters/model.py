"""Encoder and decoder (rows H1, H2, H5 to H7, H10, H11, H13, H14): the model as a whole.

    sentence → embed → N blocks, one after the other → memory → N blocks → logits → sentence

H3, H4, H8 and H9 are about training and stand in that chapter; H12 is the address of a page.
"""

import copy
from itertools import combinations

import torch
from torch import nn
from torch.nn import functional as F

from polyhead.decoding.config import DecodeConfig
from polyhead.decoding.sampling import greedy
from polyhead.i18n import Words
from polyhead.layers.embeddings import TokenEmbedding
from polyhead.layers.init import xavier
from polyhead.layers.positions import LearnedPositions, SinusoidalPositions
from polyhead.layers.transformer_stack import StackConfig, TransformerStack
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.notes.claims import Finding, check, close, same


@check(
    "H1",
    note="wrong",
    claim=Words(
        "The N = 6 blocks stand one after the other, not side by side",
        "N = 6개의 블록은 병렬이 아니라 차례로 쌓인다",
    ),
    formula="encoder(x) = block_6(block_5(… block_1(x)))",
    explain=Words(
        "The note's recipe is right up to its last step, which stacks the blocks in parallel. "
        "Blocks run in sequence: each reads what the one before it wrote. What is parallel are "
        "the words inside a block. Side by side, six blocks would all read the embeddings, and "
        "the result would be another one.",
        "노트의 순서는 블록을 '병렬적으로' 쌓는다는 마지막 단계만 빼고 맞다. 블록은 차례로 놓여 "
        "앞 블록이 쓴 것을 다음 블록이 읽는다. 병렬인 것은 블록 안의 단어들이다. 블록을 나란히 "
        "두면 여섯이 모두 임베딩을 읽게 되고 결과도 달라진다.",
    ),
    code=(TransformerStack.forward,),
)
def one_after_the_other() -> Finding:
    """Six blocks applied by hand, and the note's: all to the same input, averaged."""
    stack, x = (
        TransformerStack(StackConfig(d_model=16, n_heads=2, d_ff=32)).eval(),
        torch.randn(1, 4, 16),
    )
    first, second, third, fourth, fifth, sixth = stack.blocks
    expected = sixth(fifth(fourth(third(second(first(x))))))
    noted = torch.stack([block(x) for block in stack.blocks]).mean(0)
    found = close(expected=expected, got=stack(x), within=1e-6)
    gap = (noted - expected).abs().max().item()
    return found.but_noted(f"off by {gap:.2g}", differs=gap > 0.1)


@check(
    "H2",
    note="imprecise",
    claim=Words(
        "A block keeps the shape; that does not make it idempotent",
        "블록은 모양을 유지하지만, 멱등한 것은 아니다",
    ),
    formula="shape(f(x)) = shape(x),   f(f(x)) ≠ f(x)",
    explain=Words(
        "Idempotent would mean that a second application changes nothing. A block keeps the shape "
        "of its input, which is why six of them can follow each other, but every one of them "
        "changes the content: the word is shape-preserving. N = 6 is the paper's base model.",
        "멱등하다는 것은 두 번째 적용이 아무것도 바꾸지 않는다는 뜻이다. 블록은 입력의 모양을 "
        "유지하므로 여섯 개를 이어 쌓을 수 있지만, 내용은 매번 바뀐다. 알맞은 말은 '모양 "
        "보존'이다. N = 6은 논문의 기본 모델이다.",
    ),
    code=(TransformerStack, StackConfig),
)
def shape_preserving() -> Finding:
    """The shape after the paper's six blocks, and what a second application still changes."""
    config = StackConfig()
    small = StackConfig(config.n_layers, d_model=16, n_heads=2, d_ff=32)
    stack, x = TransformerStack(small).eval(), torch.randn(2, 5, 16)
    once = stack(x)
    gap = (stack(once) - once).abs().max().item()
    found = same(expected=[6, 2, 5, 16], got=[len(stack.blocks), *once.shape])
    return found.but_noted(f"f(f(x)) is off by {gap:.2g}", differs=gap > 0.1)


@check(
    "H5",
    note="wrong",
    claim=Words(
        "deepcopy copies the values too: layers must be drawn anew",
        "deepcopy는 값까지 복사하므로 층마다 새로 초기화해야 한다",
    ),
    formula="W_i ≠ W_j for all layers i ≠ j",
    explain=Words(
        "The note uses copy.deepcopy() to get weights of the same shape and different values. The "
        "copies are separate tensors, but their values are identical until they are initialised "
        "again, and identical layers start as one. The library builds every block by itself: "
        "among all matrices of a model no two are equal.",
        "노트는 모양은 같고 값은 다른 가중치를 얻으려고 copy.deepcopy()를 쓴다고 한다. 복사본은 "
        "별개의 텐서지만 다시 초기화하기 전까지 값은 똑같다. 라이브러리는 블록을 하나씩 따로 "
        "만들므로 모델의 모든 행렬 가운데 같은 것이 한 쌍도 없다.",
    ),
    code=(TransformerStack, xavier),
)
def no_two_layers_are_equal() -> Finding:
    """Pairs of equal matrices in a model of three layers, and in three deep copies of a block."""
    model = Transformer(TransformerConfig(9, 9, stack=StackConfig(3, 16, 2, 32)))
    copies = nn.ModuleList(copy.deepcopy(model.encoder.blocks[0]) for _ in range(3))
    equal = [
        sum(torch.equal(a, b) for a, b in combinations(module.parameters(), 2) if a.dim() > 1)
        for module in (model, copies)
    ]
    return same(expected=0, got=equal[0]).but_noted(equal[1], differs=equal[1] > 0)


@check(
    "H6",
    claim=Words(
        "What can learn is a registered parameter; fixed waves are not",
        "학습되는 것은 등록된 파라미터이고, 고정된 사인파는 아니다",
    ),
    formula="{tensors that get a gradient} = model.parameters() ⊆ state_dict",
    explain=Words(
        "nn.Parameter enters a tensor into the model's list, from which optimisers and "
        "checkpoints take it. Here autograd is followed back from the loss to every tensor it "
        "reaches: each one is in the list and in the checkpoint. Fixed sinusoids are a buffer "
        "without gradient; learned positions are 2 tables of 100 x 16.",
        "nn.Parameter는 텐서를 모델의 목록에 올리고, 옵티마이저와 체크포인트는 그 목록을 쓴다. "
        "여기서는 손실에서 거꾸로 autograd가 닿는 모든 텐서를 찾는다. 모두 목록과 체크포인트에 "
        "들어 있다. 고정 사인파는 기울기가 없는 버퍼이고, 학습되는 위치는 100 x 16 표 두 개다.",
    ),
    code=(Transformer, SinusoidalPositions, LearnedPositions),
)
def everything_that_learns() -> Finding:
    """Tensors reached by autograd and not registered or saved; numbers that positions learn."""
    small = StackConfig(1, 16, 2, 32)
    fixed = Transformer(TransformerConfig(9, 9, stack=small)).eval()
    learned = Transformer(
        TransformerConfig(9, 9, 0, positions="learned", max_length=100, stack=small)
    )
    saved = {tensor.data_ptr() for tensor in fixed.state_dict().values()}
    listed = {tensor.data_ptr() for tensor in fixed.parameters()}
    reached, seen = set(), set()
    ahead = [fixed(torch.tensor([[3, 2]]), torch.tensor([[1, 4]])).sum().grad_fn]
    while ahead:
        node = ahead.pop()
        if node is not None and node not in seen:
            seen.add(node)
            ahead += [following for following, _ in node.next_functions]
            reached |= {node.variable.data_ptr()} if hasattr(node, "variable") else set()
    sizes = [sum(p.numel() for p in model.parameters()) for model in (fixed, learned)]
    got = [len(reached - listed), len(listed - reached), len(listed - saved), sizes[1] - sizes[0]]
    return same(expected=[0, 0, 0, 2 * 100 * 16], got=got)


@check(
    "H7",
    claim=Words(
        "A one-hot row times a matrix picks a row: an embedding",
        "원-핫 벡터에 행렬을 곱하면 행 뽑기, 곧 임베딩이다",
    ),
    formula="onehot(t) · E = E[t]",
    explain=Words(
        "All products but one are with zero. Nobody multiplies them: an embedding looks the row "
        "up. The model's input is this row times √d_model, plus its position, which is taken off "
        "here.",
        "곱셈 가운데 하나만 빼고 모두 0과의 곱이다. 그래서 실제로 곱하지 않고 임베딩에서 행을 "
        "찾아 온다. 모델의 입력은 이 행에 √d_model을 곱하고 위치를 더한 것이며, 여기서는 위치를 "
        "다시 뺐다.",
    ),
    code=(TokenEmbedding,),
)
def picking_rows() -> Finding:
    """The embedding of four tokens without its positions, and the product with one-hot rows."""
    embed = TokenEmbedding(9, 16, SinusoidalPositions(16), dropout=0.0, scale=True)
    ids = torch.tensor([[3, 8, 3, 0]])
    picked = F.one_hot(ids, 9).float() @ embed.tokens.weight
    return close(expected=4 * picked, got=embed(ids) - embed.positions(4), within=1e-6)  # √16 = 4


@check(
    "H10",
    claim=Words(
        "The context has the shape of the encoder's input",
        "컨텍스트는 인코더 입력과 모양이 같다",
    ),
    formula="memory ∈ ℝ^(batch x source x d_model)",
    explain=Words(
        "The encoder's output is not one vector for the sentence but one for every source token, "
        "padding included; the decoder looks at all of them. The number of layers does not change "
        "the shape.",
        "인코더의 출력은 문장 전체를 담은 벡터 하나가 아니라 소스 토큰마다 하나씩이며(패딩 포함) "
        "디코더는 그 모두를 본다. 층의 수는 모양을 바꾸지 않는다.",
    ),
    code=(Transformer.encode,),
)
def context_has_the_input_shape() -> Finding:
    """Embedding and memory of two sentences, by encoders of one, two and six layers."""
    source, shapes = torch.tensor([[3, 4, 5, 2], [6, 2, 0, 0]]), []
    for n_layers in (1, 2, 6):
        model = Transformer(TransformerConfig(9, 9, stack=StackConfig(n_layers, 16, 2, 32)))
        shapes.append(list(model.encode(source).states.shape))
    return same(expected=[list(model.embed_source(source).shape)] * 3, got=shapes)


@check(
    "H11",
    claim=Words(
        "The notebook's model has 9,038,853 parameters",
        "참고 노트북 모델의 파라미터는 9,038,853개이다",
    ),
    formula="vocab 7855/5893, d 256, 3+3 layers, 8 heads, d_ff 512, 100 positions",
    explain=Words(
        "The tutorial the note refers to (Multi30k, German to English) prints this number. The "
        "library's model in the same sizes has the same, but for the 5,893 biases of the "
        "notebook's output layer, which the paper does not have; they are added here. The recipe "
        "multi30k-de-en trains a translation model on the same data and reports its BLEU.",
        "노트가 참고한 튜토리얼(Multi30k 독일어-영어)이 출력하는 수다. 같은 크기로 만든 "
        "라이브러리의 모델도 같다. 다만 논문에는 없고 노트북에는 있는 출력층 편향 5,893개를 "
        "여기서 더했다. multi30k-de-en 레시피는 같은 데이터로 번역 모델을 학습하고 BLEU를 "
        "보고한다.",
    ),
    code=(Transformer, TransformerConfig),
)
def size_of_the_notebook() -> Finding:
    """All weights of the library's model, plus one bias for every target word."""
    stack = StackConfig(n_layers=3, d_model=256, n_heads=8, d_ff=512)
    config = TransformerConfig(
        7855, 5893, tie="none", positions="learned", max_length=100, stack=stack
    )
    weights = sum(parameter.numel() for parameter in Transformer(config).parameters())
    return same(expected=9_038_853, got=weights + config.target_vocab)


@check(
    "H13",
    claim=Words(
        "The paper's models: 65 million parameters, and 213 million",
        "논문의 모델: 파라미터 6,500만 개와 2억 1,300만 개",
    ),
    formula="base: 6 layers, 512/2048, 8 heads;  big: 6 layers, 1024/4096, 16 heads",
    explain=Words(
        "The task is translation from English to German and French (newstest2014). With the joint "
        "vocabulary of 37,000 entries the two models have 63.1 and 214.2 million parameters; "
        "Table 3 of the paper says 65 and 213. No single vocabulary gives both, so that the match "
        "is to three percent.",
        "과제는 영어-독일어, 영어-프랑스어 번역(newstest2014)이다. 공동 어휘 37,000개로 두 모델은 "
        "각각 6,310만, 2억 1,420만 개의 파라미터를 가지며 논문의 표 3에는 65와 213(백만)으로 적혀 "
        "있다. 두 값을 모두 내는 어휘 크기는 없어서 3% 이내로 비교한다.",
    ),
    code=(TransformerConfig, TransformerStack),
)
def base_and_big() -> Finding:
    """Millions of parameters: encoder, decoder, and one table for all words (tie = "all")."""
    big = StackConfig(d_model=1024, n_heads=16, d_ff=4096)
    millions = []
    for config in (TransformerConfig(), TransformerConfig(stack=big)):
        with torch.device("meta"):  # counted without memory for the weights
            stacks = [TransformerStack(config.stack), TransformerStack(config.stack, cross=True)]
        weights = sum(p.numel() for stack in stacks for p in stack.parameters())
        words = config.target_vocab * config.stack.d_model
        millions.append(round((weights + words) / 1e6, 1))
    near = close(expected=[65.0, 213.0], got=millions, within=0.03)
    return Finding(near.expected, str(millions), near.holds)


@check(
    "H14",
    claim=Words(
        "Input sentence → model → output sentence",
        "입력 문장 → 모델 → 출력 문장",
    ),
    formula="y_t = argmax P(y_t | y_1 … y_{t-1}, source)",
    explain=Words(
        "Greedy decoding writes one token after the other, each the likeliest after those before "
        "it. Read again in one pass, every token of the output is the model's first choice at its "
        "place. With a trained model the one-liner is polyhead.load(folder).translate([text]).",
        "탐욕적 디코딩은 앞의 토큰들 다음에 가장 그럴듯한 토큰을 하나씩 쓴다. 출력을 한 번에 다시 "
        "읽어 보면 모든 토큰이 그 자리에서 모델의 첫째 선택이다. 학습된 모델이라면 "
        "polyhead.load(folder).translate([text]) 한 줄이면 된다.",
    ),
    code=(greedy, Transformer.begin, Transformer.step),
)
def sentence_to_sentence() -> Finding:
    """What the model writes for a sentence, and its first choices when it reads that again."""
    config = TransformerConfig(100, 100, tie="none", stack=StackConfig(1, 16, 2, 32))
    model = Transformer(config).eval()
    source = torch.tensor([[3, 4, 5, 2]])
    written = greedy(model, source, DecodeConfig(max_length=6)).tokens[0]  # (1, length)
    written = written[:, : int((written != 0).sum())]  # without what stands after the end
    logits = model(source, torch.cat([torch.tensor([[1]]), written[:, :-1]], dim=1))
    choices = 2 + logits[..., 2:].argmax(-1)  # padding and BOS are never said
    return same(expected=choices[0].tolist(), got=written[0].tolist())
