"""The runner of Kubernetes' own specs: how they share processes, and what it makes of their reports."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hack.kubernetes import specs
from hack.kubernetes.rundir import StartError
from hack.kubernetes.specs import FAST_SECONDS, PODS_LIST, Programs, Spec, Verdict, load, run_all

#: A suite that does with a spec what its name says, and writes the report that ginkgo writes.
FAKE = """#!/usr/bin/env python3
import json, re, sys, time
options = dict(part.split("=", 1) for part in sys.argv[1:] if "=" in part)
assert "--num-nodes" in options
focus = re.compile(options["--ginkgo.focus"])
def report(name, state, **more):
    group, leaf = name.split(" ", 1)
    return dict(ContainerHierarchyTexts=[group], LeafNodeText=leaf, LeafNodeType="It", State=state, RunTime=1.5e9, **more)
open(__file__ + ".asked", "a").write(options["--ginkgo.focus"] + "\\n")
names = ["[a] passes", "[a] fails (badly)", "[a] passes too", "[a] hangs in company", "[a] hangs"]
chosen = [name for name in names if focus.search("Kubernetes e2e suite " + name)]
found = []
for name in names:
    if name not in chosen:
        found.append(report(name, "skipped", ) | dict(RunTime=0))
    elif "passes" in name:
        found.append(report(name, "passed"))
    elif "fails" in name:
        place = dict(FileName="/a/b/c.go", LineNumber=7)
        found.append(report(name, "failed", Failure=dict(Message="it\\n  broke", Location=place)))
    elif "company" in name and len(chosen) == 1:
        found.append(report(name, "passed"))
    else:
        found.append(report(name, "timedout", Failure=dict(Message="A suite timeout occurred")))
if "BEFORE" in open(options["--kubeconfig"]).read():
    found = [dict(ContainerHierarchyTexts=None, LeafNodeText="", LeafNodeType="SynchronizedBeforeSuite",
                  State="failed", RunTime=1, Failure=dict(Message="no server"))]
json.dump([dict(SpecReports=found)], open(options["--ginkgo.json-report"], "w"))
sys.exit(1)
"""


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    fake = tmp_path / "e2e.test"
    fake.write_text(FAKE)
    fake.chmod(0o755)
    return Programs(fake, tmp_path / "kubectl")


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    path = tmp_path / "kubeconfig"
    path.write_text("{}")
    return path


def verdicts(names: list[str], kubeconfig: Path, programs: Programs) -> dict[str, str]:
    heard: list[Verdict] = []
    made = run_all(
        [Spec(name, 1.0) for name in names], kubeconfig, programs=programs, jobs=2, told=heard.append
    )
    assert sorted(map(str, heard)) == sorted(map(str, made))
    return {verdict.spec.name: verdict.why for verdict in made}


def test_what_failed_says_why_and_where(kubeconfig: Path, programs: Programs) -> None:
    found = verdicts(["[a] passes", "[a] fails (badly)"], kubeconfig, programs)
    assert found == {"[a] passes": "", "[a] fails (badly)": "failed: it broke (c.go:7)"}


def test_a_name_is_no_pattern_and_no_beginning(kubeconfig: Path, programs: Programs) -> None:
    assert verdicts(["[a] passes"], kubeconfig, programs) == {"[a] passes": ""}


def test_who_hung_among_others_is_run_again_alone(kubeconfig: Path, programs: Programs) -> None:
    found = verdicts(["[a] passes", "[a] hangs in company", "[a] hangs"], kubeconfig, programs)
    assert found["[a] passes"] == found["[a] hangs in company"] == ""
    assert found["[a] hangs"].startswith("timedout: A suite timeout")


def test_a_spec_the_suite_does_not_know_has_failed(kubeconfig: Path, programs: Programs) -> None:
    assert verdicts(["[a] unknown"], kubeconfig, programs)["[a] unknown"].startswith("no verdict within ")


def test_a_suite_that_cannot_start_is_told_at_once(kubeconfig: Path, programs: Programs) -> None:
    kubeconfig.write_text("BEFORE")
    with pytest.raises(StartError, match="no spec can run: no server"):
        verdicts(["[a] passes"], kubeconfig, programs)


def test_slow_specs_have_a_process_of_their_own_and_quick_ones_share() -> None:
    given = [Spec(f"s{seconds}", seconds) for seconds in (0.1, 100.0, 10.0, 10.0, 0.2, 30.0)]
    shared = [[spec.seconds for spec in chunk] for chunk in specs._chunks(given)]
    assert shared == [[100.0], [30.0], [10.0, 10.0, 0.2, 0.1]]
    many = list(specs._chunks([Spec(str(number), 0.1) for number in range(20)]))
    assert [len(chunk) for chunk in many] == [8, 8, 4]


def test_the_list_has_every_spec_once_and_most_are_quick() -> None:
    listed = load()
    names = [spec.name for spec in listed]
    assert len(set(names)) == len(names) == 136
    assert all(name.startswith("[sig-") and "[Conformance]" in name for name in names)
    assert sum(spec.seconds <= FAST_SECONDS for spec in listed) > 90


def test_what_needs_pods_is_listed_apart_and_once() -> None:
    names = [spec.name for spec in load(PODS_LIST)]
    assert len(set(names)) == len(names) > 200
    assert all(name.startswith("[sig-") and "[Conformance]" in name for name in names)
    assert set(names).isdisjoint(spec.name for spec in load())


def test_what_disturbs_others_runs_after_them(kubeconfig: Path, programs: Programs) -> None:
    # The suite knows neither: what matters is in which order it is asked.
    specs.run_all(
        [Spec("[a] hangs [Serial]", 0.1), Spec("[a] passes", 0.1)], kubeconfig, programs=programs, jobs=2
    )
    asked = Path(f"{programs.e2e}.asked").read_text().splitlines()
    assert ["Serial" in one for one in asked] == [False, True]


def test_specs_with_pods_are_not_for_the_real_control_plane(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        specs.main(["--pods", "--on", "real"])
    assert "no images" in capsys.readouterr().err


def test_measured_seconds_are_written_where_a_spec_passed(tmp_path: Path) -> None:
    path = tmp_path / "specs.txt"
    path.write_text("# head\n  3.0 [sig-a] one [Conformance]\n  4.0 [sig-a] two [Conformance]\n")
    one, two = load(path)
    specs._record([Verdict(one, 7.25), Verdict(two, 9.0, "failed")], path)
    assert path.read_text() == "# head\n  7.2 [sig-a] one [Conformance]\n  4.0 [sig-a] two [Conformance]\n"


def test_a_suite_sees_the_control_plane_it_is_given_and_not_the_users(
    kubeconfig: Path, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/somewhere/else")
    text = FAKE.replace(
        "sys.exit(1)", "import os; open(__file__ + '.env', 'w').write(json.dumps(dict(os.environ)))"
    )
    programs.e2e.write_text(text)
    verdicts(["[a] passes"], kubeconfig, programs)
    seen = json.loads(Path(f"{programs.e2e}.env").read_text())
    assert seen["KUBECONFIG"] == str(kubeconfig)
    assert seen["HOME"] != os.environ.get("HOME")
