"""The comparison of exported graphs: both searches are called alike, a missing program is named."""

import export_onnx
import small_models as small

from polyhead.special_tokens import EOS, PAD


def test_outputs_have_the_order_of_the_batches_and_only_words():
    model = small.opinionated(small.TRANSFORMERS["transformer tanh sinusoidal"])
    batches = export_onnx.batches_of([[5, EOS], [3, 4, 5, EOS], [9, 8, EOS]], 2)
    assert batches == [[[3, 4, 5, EOS], [9, 8, EOS]], [[5, EOS]]]
    alone = [export_onnx.decode_ours(model, [[source]])[0] for batch in batches for source in batch]
    outputs = export_onnx.decode_ours(model, batches)
    assert outputs == alone
    assert any(outputs)
    assert not {EOS, PAD} & {id for row in outputs for id in row}
