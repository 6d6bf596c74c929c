"""`run --portable`: the portability of the policy is in the score, and whoever has the policy can compute it again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ccl_search.portability.spec import SPEC, with_portability, without_portability
from metrics import registry
from runs.errors import BadInputError
from runs.objective import build
from tests.ccl_search.cli import Cli
from tests.ccl_search.publishing import made

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a portable search of three trials, and the search published."""
    place = tmp_path_factory.mktemp("portable")
    made.search(place / "home", made.small_card(place / "card.yaml"), 2, portable=True)
    made.published(place / "home", place / "out")
    return place


def test_the_score_is_the_composite_with_the_portability_of_each_policy(searched: Path, cli: Cli) -> None:
    home = ("--home", str(searched / "home"), "--json")
    trials = [cli("show", "latest", "--trial", str(number), *home).document for number in range(3)]

    first = trials[0]["metrics"]["avg_step_time"]["value"]
    for trial in trials:
        step, portable = (trial["metrics"][name]["value"] for name in ("avg_step_time", "portability"))
        assert trial["score"] == pytest.approx(0.8 * first / step + 0.2 * portable)
        detail = trial["metrics"]["portability"]["detail"]
        assert portable == pytest.approx(detail["share_valid"] * detail["efficiency"])
        losses = detail["losses"].values()
        assert detail["efficiency"] == pytest.approx(sum(1 / (1 + loss) for loss in losses) / len(losses))
        counts = detail["counts"]
        applicable = sum(counts.values()) - counts["impossible"]
        assert detail["share_valid"] == pytest.approx(counts["valid"] / applicable)


def test_lint_of_the_run_says_the_same_number(searched: Path, cli: Cli) -> None:
    home = ("--home", str(searched / "home"), "--json")
    best = cli("best", "latest", *home).document

    report = cli("policies", "lint", "latest", *home).document

    assert report["portability"] == best["metrics"]["portability"]


def test_a_published_portable_search_is_verified_imported_and_reproduced(
    searched: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified = cli("verify", str(searched / "out"), "--json")
    imported = cli("import", str(searched / "out"), "--json")
    again = cli("replay", "--exact", str(searched / "out"), "--json")

    assert (verified.code, verified.document["status"]) == (0, "verified")
    run = imported.document["runs"][0]["run_id"]
    assert "portability" in cli("best", run, "--json").document["metrics"]
    assert (again.code, again.document["reproduced"]) == (0, True)


def test_a_forged_portability_is_a_mismatch_even_where_the_score_was_forged_with_it(
    searched: Path, tmp_path: Path, cli: Cli
) -> None:
    import shutil

    folder = Path(shutil.copytree(searched / "out", tmp_path / "copy"))
    told = json.loads((folder / "trials/01/metrics.json").read_text(encoding="utf-8"))
    value = told["metrics"]["portability"]["value"]
    made.edit(folder, "trials/01/metrics.json", lambda text: text.replace(str(value), "1.0"))

    found = cli("verify", str(folder), "--json")

    assert found.code == 1
    mismatch = next(f for f in found.document["findings"] if f["what"] == "portability")
    assert (mismatch["published"], mismatch["found"]) == (1.0, value)


def test_portability_over_other_clusters_than_ours_cannot_be_told(searched: Path, tmp_path: Path, cli: Cli) -> None:
    import shutil

    folder = Path(shutil.copytree(searched / "out", tmp_path / "copy"))
    for number in range(3):
        name = f"trials/{number:02d}/metrics.json"
        told = json.loads((folder / name).read_text(encoding="utf-8"))
        digest = told["metrics"]["portability"]["detail"]["basis"]["cases"]
        made.edit(folder, name, lambda text, old=digest: text.replace(old, "0" * 64))  # type: ignore[misc]

    found = cli("verify", str(folder), "--json")

    assert (found.code, found.document["status"]) == (5, "unverifiable")
    assert "other clusters" in found.document["findings"][0]["what"]


def test_a_strangers_endless_space_is_not_walked(searched: Path, tmp_path: Path, cli: Cli) -> None:
    """Hundreds of billions of configs, none of them valid: looking for one would never end."""
    import shutil

    import yaml

    folder = Path(shutil.copytree(searched / "out", tmp_path / "copy"))
    manifest = yaml.safe_load((folder / "manifest.yaml").read_text(encoding="utf-8"))
    manifest["space"]["name"] = "endless"
    manifest["space"]["knobs"] += [
        {"key": f"k{n}", "type": "int", "choices": list(range(40)), "description": ""} for n in range(7)
    ]
    manifest["space"]["constraints"] += [{"name": "never", "expression": "k6 > 99", "message": ""}]
    (folder / "manifest.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False), encoding="utf-8")

    found = cli("verify", str(folder), "--json")

    assert found.code == 1  # the policies give no config of this space
    assert any("too large to be walked" in f["what"] for f in found.document["findings"])


def test_perturbed_times_leave_portability_as_it_is(searched: Path, tmp_path: Path, cli: Cli) -> None:
    made.published(searched / "home", tmp_path / "perturbed", anonymise=True, perturb=True)

    plain, perturbed = (
        json.loads((folder / "trials/01/metrics.json").read_text(encoding="utf-8"))["metrics"]
        for folder in (searched / "out", tmp_path / "perturbed")
    )
    assert perturbed["portability"]["value"] == plain["portability"]["value"]
    assert perturbed["avg_step_time"]["value"] != plain["avg_step_time"]["value"]
    assert cli("verify", str(tmp_path / "perturbed"), "--json").document["status"] == "verified"


def test_a_replay_ranks_configs_not_policies(searched: Path, cli: Cli) -> None:
    document = cli("replay", str(searched / "out"), "--environment", "h100-8", "--json").document

    assert document["objective"] == "avg_step_time"


def test_a_run_can_be_scored_again_with_portability(cli: Cli, tmp_path: Path) -> None:
    run = made.search(cli.home, made.small_card(tmp_path / "card.yaml"), 1)

    document = cli("rescore", run, "--objective", "step_time", "--portable", "--weights", "0.5,0.5", "--json").document

    assert document["objective"]["name"] == "0.5*avg_step_time + 0.5*portability"
    first = document["trials"][0]
    assert first["recomputed"] == ["portability"]
    assert first["score"] == pytest.approx(0.5 + 0.5 * first["values"]["portability"])
    for trial in document["trials"]:
        values = trial["values"]
        expected = 0.5 * first["values"]["avg_step_time"] / values["avg_step_time"] + 0.5 * values["portability"]
        assert trial["score"] == pytest.approx(expected)


def test_a_bound_on_portability_holds(cli: Cli, tmp_path: Path) -> None:
    card = str(made.small_card(tmp_path / "card.yaml"))
    result = cli("run", "--card", card, "--iterations", "1", "--constraint", "portability >= 1.5", "--json")

    assert result.code != 0
    assert result.document["best"] is None
    evidence = cli("show", "latest", "--trial", "0", "--json").document["evidence"]
    assert "`portability >= 1.5` does not hold" in evidence


def test_weights_leave_portability_a_fifth_or_what_is_asked_for() -> None:
    two = build([registry.spec("step_time"), registry.spec("num_xpus")], None)

    def weights(*given: float) -> list[float]:
        return [term.weight for term in with_portability(two, given).terms]

    assert weights() == pytest.approx([0.4, 0.4, 0.2])
    assert weights(3, 1) == pytest.approx([0.6, 0.2, 0.2])
    assert weights(1, 1, 2) == pytest.approx([0.25, 0.25, 0.5])
    with pytest.raises(BadInputError, match="4 weights for 3"):
        weights(1, 1, 1, 1)
    scored = with_portability(two, (1, 1, 2))
    assert scored.terms[-1].baseline == 1.0
    left = without_portability(scored)
    assert left is not None
    assert [term.weight for term in left.terms] == pytest.approx([0.5, 0.5])
    assert without_portability(build([SPEC], None)) is None
    with pytest.raises(BadInputError, match="already"):
        with_portability(scored, ())
