"""/v1/translate: results equal those of the library, alone or in shared batches."""

import asyncio
import json
import re
from dataclasses import replace

import pytest
import torch
from asgi import JSON, call

from polyhead.pipelines.translator import TranslatedSentence, Translation
from polyhead.server.segments import decode_segments, join_segments, split_text
from polyhead.special_tokens import BOS, EOS
from polyhead.viz.word_alignment import alignment

TEXTS = ["내일 회의가 있어요.", "오늘은 금요일입니다.", "세 시에 만나요.", "a", "표 두 장 주세요."]
SHORT = {"max_length": 12}


def library(translator, text, **changes):
    """Return the library's translations of a text, decoded alone."""
    options = replace(translator.defaults, **changes)
    segments = split_text(translator, text, options)
    alone = [decode_segments(translator, [segment])[0] for segment in segments]
    return join_segments(translator, text, segments, alone)


def test_translations_equal_the_librarys(server, served):
    answer = server.post("/v1/translate", {"text": TEXTS[0], "n_best": 3, **SHORT})
    assert answer.status == 200
    (result,) = answer.json()["translations"]
    expected = library(served("translate").model, TEXTS[0], n_best=3, max_length=12)
    assert [one["text"] for one in result["hypotheses"]] == [one.text for one in expected]
    for one, other in zip(result["hypotheses"], expected, strict=True):
        assert one["score"] == pytest.approx(other.score, abs=1e-5)
        assert one["log_p"] == pytest.approx(other.log_p, abs=1e-5)
        assert one["ids"] == list(other.ids)
    assert result["text"] == TEXTS[0]
    assert result["pieces"] == 1


def test_translations_do_not_depend_on_other_requests(server, served):
    translator = served("translate").model
    expected = [library(translator, text)[0].text for text in TEXTS]

    async def send_all():
        bodies = [json.dumps({"text": text}).encode() for text in TEXTS * 4]
        sent = [call(server.app, "POST", "/v1/translate", body, [JSON]) for body in bodies]
        return await asyncio.gather(*sent)

    answers = [answer.json()["translations"][0] for answer in server.run(send_all())]
    assert [one["hypotheses"][0]["text"] for one in answers] == expected * 4
    together = server.post("/v1/translate", {"text": TEXTS}).json()["translations"]
    assert [one["hypotheses"][0]["text"] for one in together] == expected


def test_concurrent_requests_share_batches(server):
    async def send_all():
        body = json.dumps({"text": TEXTS[0], **SHORT}).encode()
        await asyncio.gather(
            *(call(server.app, "POST", "/v1/translate", body, [JSON]) for _ in range(30))
        )

    def batches():
        text = server.get("/metrics").body.decode()
        names = ("polyhead_batch_rows_count", "polyhead_batch_rows_sum")
        return [float(re.search(rf"^{name} (\S+)$", text, re.M)[1]) for name in names]

    before = batches()
    server.run(send_all())
    count, rows = (b - a for a, b in zip(before, batches(), strict=True))
    steps = SHORT["max_length"]
    assert 30 <= rows <= 30 * steps  # one slot per step of each
    assert count < 30 * steps / 4  # steps are shared


def test_sentences_are_translated_one_by_one(server, served):
    translator = served("translate").model
    body = {"text": " ".join(TEXTS[:3]), "beam": 1, **SHORT}
    (result,) = server.post("/v1/translate", body).json()["translations"]
    expected = [library(translator, text, beam=1, max_length=12)[0].text for text in TEXTS[:3]]
    assert (result["pieces"], result["sentences"]) == (3, TEXTS[:3])
    best = result["hypotheses"][0]
    assert best["text"] == " ".join(expected)
    assert [sentence["text"] for sentence in best["sentences"]] == expected
    libre = {"q": body["text"], "source": "ko", "target": "en"}
    alone = [server.post("/translate", {**libre, "q": text}).json() for text in TEXTS[:3]]
    together = server.post("/translate", libre).json()["translatedText"]
    assert together == " ".join(answer["translatedText"] for answer in alone)
    whole = server.post("/v1/translate", {**body, "split_sentences": False}).json()
    assert whole["translations"][0]["pieces"] == 1


@pytest.mark.parametrize("beam", [1, 4])
def test_probabilities_and_confidence_are_those_of_a_forward_pass(server, served, beam):
    translator = served("translate").model
    sent = {"text": " ".join(TEXTS[:2]), "n_best": beam, "beam": beam, "tokens": True, **SHORT}
    (result,) = server.post("/v1/translate", sent).json()["translations"]
    assert len(result["hypotheses"]) == beam
    for hypothesis in result["hypotheses"]:
        everything = []
        for source, sentence in zip(result["sentences"], hypothesis["sentences"], strict=True):
            written = [*sentence["ids"], *([EOS] if sentence["ended"] else [])]
            read = torch.tensor([translator.tokenizer.encode(source)])
            with torch.inference_mode():
                logits = translator.model(read, torch.tensor([[BOS, *written[:-1]]]))[0]
            log_p = logits.log_softmax(-1)[range(len(written)), written]
            probabilities = [p for word in sentence["words"] for p in word["probabilities"]]
            expected = log_p.exp().tolist()[: len(sentence["ids"])]
            assert probabilities == pytest.approx(expected, rel=1e-4)
            assert "".join(word["text"] for word in sentence["words"]) == sentence["text"]
            assert sentence["confidence"] == pytest.approx(log_p.mean().exp().item(), rel=1e-4)
            everything += log_p.tolist()
        mean = torch.tensor(everything).mean().exp().item()
        assert hypothesis["confidence"] == pytest.approx(mean, rel=1e-4)


def test_the_attention_of_one_sentence_is_shown(server):
    text = " ".join(TEXTS[:2])
    for number in (1, 2):
        sent = {"text": text, "sentence": number, "format": "json"}
        assert server.post("/v1/attention", sent).json()["source"]["text"] == TEXTS[number - 1]
    assert server.post("/v1/attention", {"text": text, "sentence": 3}).status == 422


def test_line_breaks_and_empty_lines_are_kept(server, served):
    text = f"{TEXTS[0]}\n\n  \n{TEXTS[1]}\n"
    answer = server.post("/v1/translate", {"text": text, "beam": 1, **SHORT}).json()
    result = answer["translations"][0]["hypotheses"][0]["text"]
    one, two = (
        library(served("translate").model, line, beam=1, max_length=12)[0].text
        for line in TEXTS[:2]
    )
    assert result == f"{one}\n\n  \n{two}\n"


def test_empty_texts_have_empty_translations(server):
    answer = server.post("/v1/translate", {"text": ["", " ", "\n"]}).json()
    assert [one["hypotheses"][0]["text"] for one in answer["translations"]] == ["", "", "\n"]


def test_prefix_tokens_and_alignment_are_returned(server, served):
    sent = {"text": TEXTS[0], "prefix": "표", "tokens": True, "alignment": True, **SHORT}
    (result,) = server.post("/v1/translate", sent).json()["translations"]
    best = result["hypotheses"][0]
    assert best["text"].startswith("표")
    assert [token["id"] for token in best["tokens"]] == best["ids"]
    assert "".join(token["text"] for token in best["tokens"]).startswith("표")
    sentence = TranslatedSentence(TEXTS[0], best["text"], tuple(best["ids"]), 0.0, True, ())
    translation = Translation(best["text"], 0.0, 0.0, sentence.ids, (sentence,))
    (expected,) = alignment(served("translate").model, [translation])
    reported = [(link["source"], link["target"], link["weight"]) for link in best["alignment"]]
    assert reported == [tuple(link) for link in expected]


@pytest.fixture
def limited(served, another):
    """Serve a translator with 40 positions whose outputs hardly ever end."""
    known = served("translate")
    saved = known.model.saved
    config = replace(saved.config, positions="learned", max_length=40)
    torch.manual_seed(1)
    run = {**saved.about["run"], "data": {**saved.about["run"]["data"], "max_length": 40}}
    made = type(saved.model)(config).eval()
    other = replace(saved, config=config, model=made, about={**saved.about, "run": run})
    limited = known.model.from_saved(other, known.model.name, known.model.device)
    return another(replace(known, model=limited))


def test_the_longest_possible_output_has_alignment_and_attention(limited):
    sent = {"text": TEXTS[0], "beam": 1, "max_length": 40, "alignment": True, "tokens": True}
    answer = limited.post("/v1/translate", sent)
    assert answer.status == 200
    best = answer.json()["translations"][0]["hypotheses"][0]
    assert len(best["ids"]) == 40  # the test needs the longest output
    words = {token["word"] for token in best["tokens"][:-1]}
    assert len(best["alignment"]) == len(words)
    assert limited.post("/v1/steps", {"text": TEXTS[0], "max_tokens": 300}).status == 200
    longer = f"{TEXTS[0][:-1]} {TEXTS[2]}"  # an output may be twice as long, and 10 tokens
    view = limited.post("/v1/attention", {"text": longer, "format": "json"})
    assert view.status == 200
    assert len(view.json()["target"]["tokens"]) == 40  # <s> and all but the last
    given = {"text": TEXTS[0], "target_ids": best["ids"], "ended": False, "format": "json"}
    assert len(limited.post("/v1/attention", given).json()["predictions"]) == 40
    assert limited.post("/v1/attention", {**given, "ended": True}).status == 422


def test_models_are_selected_by_language_or_name(server, served):
    good = {"text": "a", "source": "ko", "target": "en", **SHORT}
    assert server.post("/v1/translate", good).json()["model"] == served("translate").name
    refused = server.post("/v1/translate", {**good, "target": "fr"})
    assert refused.status == 422
    assert "languages" in refused.json()["error"]
    named = {"text": "a", "model": "../../etc/passwd"}
    assert server.post("/v1/translate", named).status == 404
    wrong = server.post("/v1/translate", {"text": "a", "model": served("generate").name})
    assert wrong.status == 422
    assert "generate" in wrong.json()["error"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"n_best": 11}, "n_best"), ({"beam": 17}, "beam"), ({"beam": 0}, "beam"),
        ({"length_penalty": 3}, "length_penalty"), ({"max_length": 1025}, "max_length"),
        ({"text": "x" * 10_001}, "text"), ({"text": ["x" * 5_001] * 2}, "text"),
        ({"text": ["x"] * 65}, "text"), ({"text": 5}, "text"), ({"text": []}, "text"),
        ({"beem": 4}, "beem"), ({"n_best": 1.5}, "n_best"), ({"n_best": "2"}, "n_best"),
        ({"alternatives": 10_000}, "alternatives"), ({"text": ["가", 5]}, "text.1"),
        ({"text": ["가", "가" * 10_001]}, "text.1"), ({"n[best]": 5}, "n[best]"),
    ],
)  # fmt: skip
def test_values_over_a_limit_are_rejected_by_name(server, change, field):
    answer = server.post("/v1/translate", {"text": "a", **change})
    assert answer.status == 422
    assert answer.json()["field"] == field
    assert field in answer.json()["error"]
    assert len(answer.body) < 1000
