"""What tables say, in two languages."""

from polyhead.i18n import Words

WORDS = {
    "compare heading": Words("Table 2 on {data}", "{data}에서 다시 만든 표 2"),
    "ladder heading": Words("The attention ladder on {data}", "{data}에서 본 어텐션 사다리"),
    "lead": Words(
        "Every system was trained on the same text with the same vocabulary under the same budget: "
        "{budget} each, {seeds}. Test set: {where}, {n} lines. Search: greedy, and a beam "
        "of {beam} with length penalty {alpha}.",
        "모든 시스템을 같은 글, 같은 어휘, 같은 예산으로 학습했습니다: 각각 {budget}, "
        "{seeds}. 평가 집합: {where}, {n}줄. 탐색: 탐욕 탐색, 그리고 빔 탐색(빔 {beam}, 길이 벌점 "
        "{alpha}).",
    ),
    "own text": Words("your own text", "직접 준비한 글"),
    "held out": Words("held out of the training text", "학습 글에서 떼어 둔 문장"),
    "system": Words("system", "시스템"),
    "ensemble": Words("{names}, ensemble of {n}", "{names}, {n}개의 앙상블"),
    "greedy": Words("greedy", "탐욕"),
    "beam": Words("beam", "빔"),
    "lower-cased": Words("lower-cased", "소문자"),
    "cased": Words("cased", "대소문자 구별"),
    "tutorial": Words("tutorials' BLEU", "튜토리얼 BLEU"),
    "p": Words("p", "p"),
    "flops": Words("FLOPs counted", "FLOPs (계산)"),
    "measured": Words("FLOPs measured", "FLOPs (측정)"),
    "steps": Words("steps", "스텝"),
    "minutes": Words("minutes", "분"),
    "parameters": Words("parameters", "매개변수"),
    "speed": Words("sentences a second, greedy / beam", "초당 문장 수, 탐욕 / 빔"),
    "memory": Words("memory of decoding", "디코딩 메모리"),
    "paper BLEU": Words("paper: BLEU EN-DE / EN-FR", "논문: BLEU EN-DE / EN-FR"),
    "paper FLOPs": Words("paper: FLOPs EN-DE / EN-FR", "논문: FLOPs EN-DE / EN-FR"),
    "paper heading": Words("The paper's own Table 2", "논문의 표 2"),
    "signatures": Words("scores", "점수 서명"),
    "note spread": Words(
        "The range of a score: from the lowest to the highest of all seeds.",
        "점수의 범위: 시드 중 최저부터 최고까지.",
    ),
    "note interval": Words(
        "The range of a score: where 95 % of 1,000 bootstrap samples of the test set lie.",
        "점수의 범위: 평가 집합의 부트스트랩 표본 1,000개 중 95%가 드는 구간.",
    ),
    "note few": Words(
        "The shortest training had {steps} steps: too few for the order of the rows to mean much. "
        "Give a larger budget.",
        "가장 짧은 학습이 {steps}스텝이었습니다. 순위를 말하기에는 너무 적으니 예산을 늘려 보세요.",
    ),
    "note p": Words(
        "p: how likely so large a difference from “{baseline}” is by chance, by {test} of greedy "
        "outputs.",
        "p: ‘{baseline}’와의 차이가 우연일 확률. 탐욕 탐색의 출력으로 {test}을 했습니다.",
    ),
    "note p of seeds": Words(
        "p: how likely so large a difference from “{baseline}” is by chance, by {test} of greedy "
        "outputs (the median over seeds).",
        "p: ‘{baseline}’와의 차이가 우연일 확률. 탐욕 탐색의 출력으로 {test}을 했습니다(시드들의 "
        "중앙값).",
    ),
    "note teams": Words(
        "Ensembles of seeds are tested against that of “{baseline}”.",
        "시드들의 앙상블은 ‘{baseline}’의 앙상블과 비교했습니다.",
    ),
    "note flops": Words(
        "FLOPs: matrix products of the whole training. Counted: for sentences of average length "
        "without padding, times the tokens trained on. Measured: by torch's counter on real "
        "batches, padding included; for training by reward, with the sentences that are drawn.",
        "FLOPs: 학습 전체의 행렬 곱. 계산: 평균 길이 문장에 대해 패딩 없이 세어 학습한 토큰 수를 "
        "곱한 값. 측정: 실제 배치에서 torch의 카운터로 잰 값(패딩 포함, 보상 학습에서는 뽑은 "
        "문장 포함).",
    ),
    "note time": Words(
        "Minutes: the processors' time of all updates, divided by the number of threads; "
        "validation is not counted.",
        "분: 모든 갱신에 든 프로세서 시간을 스레드 수로 나눈 값. 검증 시간은 빠져 있습니다.",
    ),
    "note memory": Words(
        "Memory: the parameters, and what one sentence of middling length holds while it is "
        "decoded with the beam.",
        "메모리: 매개변수, 그리고 중간 길이 문장 하나를 빔으로 디코딩하는 동안 기억하는 양.",
    ),
    "note paper": Words(
        "The paper's figures are of full-sized models on WMT 2014, English to German and to "
        "French: compare the order, not the numbers.",
        "논문의 값은 WMT 2014 영독 및 영불 번역의 온전한 크기 모델입니다. 숫자가 아니라 순서를 "
        "비교하세요.",
    ),
    "note coverage": Words(
        "Beam search has a coverage penalty of {coverage:g} for the systems that attend; the "
        "others have none.",
        "빔 탐색의 커버리지 벌점은 {coverage:g}이며, 어텐션이 있는 시스템에만 적용했습니다.",
    ),
    "note unknown": Words(
        "Unknown words are replaced by what was looked at (PosUnk) for the systems that attend; "
        "the others keep them.",
        "모르는 단어는 어텐션이 가장 많이 본 단어로 바꾸었습니다(PosUnk). 어텐션이 없는 시스템의 "
        "출력에는 그대로 있습니다.",
    ),
    "note experts": Words(
        "Experts of {system}: {used} % of them were asked in the last validation, the busiest got "
        "{most} % of the questions of its layer.",
        "{system}의 전문가: 마지막 검증에서 {used}%가 쓰였고, 가장 바쁜 전문가가 그 층의 질문 중 "
        "{most}%를 받았습니다.",
    ),
    "note tutorial": Words(
        "Tutorials' BLEU: bentrevett/pytorch-seq2seq on the same data, greedy, lower-cased, "
        "tokenised by spaCy, trained as long as its author liked.",
        "튜토리얼 BLEU: 같은 데이터를 쓴 bentrevett/pytorch-seq2seq의 값(탐욕, 소문자, spaCy "
        "토큰화, 학습 시간은 저자 마음대로).",
    ),
    "quality against cost": Words("Quality against training cost", "학습 비용과 품질"),
    "paper chart": Words("The same in the paper ({pair})", "논문에서는 ({pair})"),
    "learning curves": Words("Learning curves", "학습 곡선"),
    "validation loss": Words("validation loss", "검증 손실"),
    "share": Words("share of the budget", "예산 중 쓴 비율"),
    "training FLOPs": Words("training FLOPs", "학습 FLOPs"),
    "LSTM, no attention": Words("LSTM, no attention", "LSTM, 어텐션 없음"),
    "GRU, context everywhere": Words("GRU, context everywhere", "GRU, 매번 문맥을 읽음"),
    "GRU with attention": Words("GRU with attention", "GRU와 어텐션"),
    "LSTM with attention": Words("LSTM with attention", "LSTM과 어텐션"),
    "last state": Words("last state", "마지막 상태"),
    "mean of all states": Words("mean of all states", "모든 상태의 평균"),
    "a weight for each place": Words("a weight for each place", "자리마다 가중치"),
    "a function of h": Words("a function of h", "h의 함수"),
}


def in_words(key: str, language: str) -> str:
    """What is said for a key; a name that has no translation is itself."""
    return WORDS[key].in_language(language) if key in WORDS else key
