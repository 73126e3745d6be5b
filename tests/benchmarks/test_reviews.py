"""The comparison of pre-trained nets: its samples, its clock, and what it says without data."""

import reviews


def test_samples_are_drawn_by_their_seed_and_survive_being_written(tmp_path):
    path = tmp_path / "train.tsv"
    path.write_text(
        "id\tdocument\tlabel\n" + "".join(f"{n}\treview {n}\t{n % 2}\n" for n in range(50)),
        encoding="utf-8",
    )
    found = reviews.sample(path, 10, seed=1)
    assert len(set(found.texts)) == 10
    assert all(
        int(t.split()[1]) % 2 == int(c) for t, c in zip(found.texts, found.labels, strict=True)
    )
    assert reviews.sample(path, 10, seed=1) == found
    assert reviews.sample(path, 10, seed=2) != found
    assert len(reviews.sample(path, 1000, seed=1)) == 50
    part = tmp_path / "part.tsv"
    part.write_text(reviews.rows(found), encoding="utf-8")
    assert reviews.examples(part) == found
