"""The launcher of the node: its life, once, with a real one; what can go wrong, with a stand-in for Java."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import zipfile
from pathlib import Path

import distribution
import node
import pytest
from distribution import VERSION, NodeError, NotInstalled

SCRIPT = Path(node.__file__)


def call(url: str, body: dict[str, object] | None = None, method: str = "GET") -> dict[str, object]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT, *arguments], capture_output=True, text=True, check=False, timeout=240
    )


def wait_until_gone(pid: int) -> bool:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


# A real node.


def test_english_words_are_stemmed_and_cjk_text_becomes_bigrams(opensearch_url: str) -> None:
    index = f"{opensearch_url}/test-node-analysers"
    stemmer = {"english_stemmer": {"type": "stemmer", "language": "english"}}
    analyzers = {
        "stemmed": {"tokenizer": "standard", "filter": ["lowercase", "english_stemmer"]},
        "bigrams": {"tokenizer": "standard", "filter": ["cjk_width", "lowercase", "cjk_bigram"]},
    }
    settings = {"number_of_replicas": 0, "analysis": {"filter": stemmer, "analyzer": analyzers}}
    call(index, {"settings": settings}, "PUT")
    try:
        found: dict[str, list[str]] = {}
        for analyzer, text in (("stemmed", "Meetings about RUNNING budgets"), ("bigrams", "会議室の予算")):
            answer = call(f"{index}/_analyze", {"analyzer": analyzer, "text": text}, "POST")
            found[analyzer] = [token["token"] for token in answer["tokens"]]  # type: ignore[index]
    finally:
        call(index, method="DELETE")
    assert found["stemmed"] == ["meet", "about", "run", "budget"]
    assert found["bigrams"] == ["会議", "議室", "室の", "の予", "予算"]


def test_a_node_lives_once_per_folder_and_leaves_nothing_behind(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue("opensearch_url")  # skips here, or fails in CI, where there is no Java or OpenSearch
    data = tmp_path / "a folder"
    started = command("start", "--data", data, "--heap", "256m")
    try:
        assert started.returncode == 0, started.stderr
        url = started.stdout.strip()
        assert call(f"{url}/_cluster/health")["status"] == "green"
        assert call(url)["version"]["number"] == VERSION  # type: ignore[index]
        nodes: dict[str, dict[str, dict[str, list[str]]]] = call(f"{url}/_nodes/http,transport")["nodes"]  # type: ignore[assignment]
        bound = [
            address
            for each in nodes.values()
            for kind in ("http", "transport")
            for address in each[kind]["bound_address"]
        ]
        assert bound
        assert all(address.startswith("127.0.0.1:") for address in bound)

        again = command("start", "--data", data)
        assert again.returncode == 2
        assert "already" in again.stderr
        assert url in again.stderr
        assert call(f"{url}/_cluster/health")["status"] == "green"
    finally:
        stopped = command("stop", "--data", data)
    assert stopped.returncode == 0, stopped.stderr
    assert not (data / "node.pid").exists()
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", int(url.rpartition(":")[2])))
    assert "no node runs" in command("stop", "--data", data).stderr


# A stand-in for Java, which is a shell script, and for the distribution, which is an empty jar.


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a JAVA_HOME that says it is Java 17 and then sleeps, and an OpenSearch without content."""
    home = tmp_path / "opensearch"
    (home / "lib").mkdir(parents=True)
    (home / "lib" / f"opensearch-core-{VERSION}.jar").touch()
    monkeypatch.setenv("FUTARI_OPENSEARCH_HOME", str(home))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.delenv("OPENSEARCH_JAVA_OPTS", raising=False)
    write_java(tmp_path, "17.0.1", "echo waiting for nothing; while :; do sleep 0.05; done")
    return tmp_path


def write_script(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)


def write_java(folder: Path, version: str, body: str) -> None:
    answer = f'[ "$1" = -version ] && {{ echo \'openjdk version "{version}"\' >&2; exit 0; }}'
    write_script(folder / "java" / "bin" / "java", f"{answer}\n{body}")


def test_a_node_that_ends_while_starting_is_reported_with_its_log(fake: Path) -> None:
    write_java(fake, "17.0.1", "echo the disk is on fire; exit 7")
    (fake / "data" / "logs").mkdir(parents=True)
    (fake / "data" / "logs" / "node.log").write_text("from an earlier start\n")
    with pytest.raises(NodeError, match="exit code 7") as caught:
        node.start(fake / "data")
    assert "the disk is on fire" in str(caught.value)
    assert "an earlier start" not in str(caught.value)
    assert not (fake / "data" / "node.pid").exists()


def test_a_node_that_does_not_come_up_is_killed_and_reported(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    write_pid = node._pid_file

    def remember(data: Path) -> Path:
        path = write_pid(data)
        if path.exists():
            started.append(int(path.read_text()))
        return path

    monkeypatch.setattr(node, "_pid_file", remember)
    with pytest.raises(NodeError, match="not healthy after 1 s") as caught:
        node.start(fake / "data", deadline=1.0)
    assert "waiting for nothing" in str(caught.value)
    assert not (fake / "data" / "node.pid").exists()
    assert started
    assert wait_until_gone(started[-1])


def test_a_red_cluster_is_not_healthy(fake: Path) -> None:
    from http.server import BaseHTTPRequestHandler, HTTPServer
    from threading import Thread

    class Red(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"status": "red"}')

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Red)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        ports = f"printf '127.0.0.1:{server.server_port}\\n' > logs/http.ports"
        write_java(fake, "17.0.1", f"{ports}; while :; do sleep 0.05; done")
        with pytest.raises(NodeError, match="not healthy"):
            node.start(fake / "data", deadline=1.0)
    finally:
        server.shutdown()
        server.server_close()


def test_a_pid_file_of_a_dead_or_foreign_process_stops_nobody(fake: Path) -> None:
    (fake / "data").mkdir()
    (fake / "data" / "node.pid").write_text(f"{os.getpid()}\n")  # alive, and no node
    assert node.running_pid(fake / "data") is None
    assert not node.stop(fake / "data")
    assert not (fake / "data" / "node.pid").exists()
    (fake / "data" / "node.pid").write_text("not a number\n")
    assert not node.stop(fake / "data")


def test_two_starts_at_once_on_one_folder(fake: Path) -> None:
    (fake / "data").mkdir()
    with node._only_start(fake / "data"), pytest.raises(NodeError, match="just starting"):
        node.start(fake / "data")


@pytest.mark.skipif(sys.platform != "linux", reason="only the Linux kernel tells a child that its parent died")
def test_the_node_dies_with_its_parent(fake: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(SCRIPT.parent)!r})\n"
        "from pathlib import Path\nfrom node import Node\n"
        f"with Node(Path({str(fake / 'data')!r})): pass\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    until = time.monotonic() + 30
    while (pid := node.running_pid(fake / "data")) is None and time.monotonic() < until:
        time.sleep(0.05)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert pid is not None
    assert wait_until_gone(pid)


def test_options_of_the_user_come_last_and_paths_keep_their_spaces(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSEARCH_JAVA_OPTS", "-Xmx3g '-Dname=two words'")
    write_java(fake, "21", 'for word in "$@"; do echo "<$word>"; done; exit 1')
    with pytest.raises(NodeError):
        node.start(fake / "my data", heap="2g")
    words = (fake / "my data" / "logs" / "node.log").read_text().splitlines()
    assert words.index("<-Xmx2g>") < words.index("<-Xmx3g>")
    assert "<-Dname=two words>" in words
    assert "<-Djava.security.manager=allow>" in words  # Java 18 and newer
    assert f"<-Dopensearch.path.conf={fake / 'my data' / 'config'}>" in words
    settings = (fake / "my data" / "config" / "opensearch.yml").read_text()
    assert f'path.data: "{fake / "my data" / "data"}"' in settings
    assert 'network.host: "127.0.0.1"' in settings


def test_settings_of_the_user_are_in_the_file_but_not_those_of_the_launcher(
    fake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_java(fake, "21", "exit 1")
    more = ["--setting", "thread_pool.search.size=1", "--setting", "cluster.routing.allocation.disk.watermark.low=5gb"]
    assert node.main(["start", "--data", str(fake / "data"), *more]) == 2
    settings = (fake / "data" / "config" / "opensearch.yml").read_text().splitlines()
    assert 'thread_pool.search.size: "1"' in settings
    assert [line for line in settings if "watermark.low" in line] == [
        'cluster.routing.allocation.disk.watermark.low: "5gb"'
    ]
    for name in ("network.host", "http.bind_host", "path.data"):
        capsys.readouterr()
        assert node.main(["start", "--data", str(fake / "data"), "--setting", f"{name}=0.0.0.0"]) == 2
        assert f"setting {name}: the launcher chooses it" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        node.main(["start", "--data", str(fake / "data"), "--setting", "network.host"])


@pytest.mark.parametrize("version", ["10", "1.8.0_292", "24.0.1"])
def test_a_java_that_opensearch_cannot_run_on_is_passed_over(
    fake: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_java(fake, version, "exit 1")
    monkeypatch.setenv("PATH", str(fake / "nowhere"))
    monkeypatch.setattr(distribution, "JVM_FOLDER", fake / "nowhere")
    with pytest.raises(NotInstalled, match=r"needs Java 11 to 23") as caught:
        distribution.java()
    assert f"Java {version.removeprefix('1.').partition('.')[0]}" in str(caught.value)
    monkeypatch.setattr(distribution, "JVM_FOLDER", fake)
    (fake / "jvm17").mkdir()
    write_java(fake / "jvm17", "17", "exit 1")
    (fake / "jvm17" / "java").rename(fake / "z17")
    assert distribution.java() == (fake / "z17" / "bin" / "java", 17)


def test_maven_fills_the_cache_once_and_completely(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(fake / "made.zip", "w") as archive:
        archive.writestr(f"opensearch-{VERSION}/lib/opensearch-core-{VERSION}.jar", "core")
        archive.writestr(f"opensearch-{VERSION}/modules/transport-netty4/some.jar", "netty")
    copies = f'cp "{fake}/made.zip" "$to/opensearch-{VERSION}.zip"; echo jar > "$to/analysis-common-{VERSION}.jar"'
    take = 'for word in "$@"; do case "$word" in -Dfolder=*) to="${word#-Dfolder=}";; esac; done; mkdir -p "$to"'
    write_script(fake / "bin" / "mvn", f'{take}\n{copies}\necho once >> "{fake}/calls"')
    monkeypatch.setenv("PATH", f"{fake / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("FUTARI_OPENSEARCH_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(fake / "cache"))
    home = distribution.opensearch_home()
    assert home == fake / "cache" / "futari" / f"opensearch-{VERSION}"
    assert distribution.opensearch_home() == home
    assert (fake / "calls").read_text() == "once\n"
    assert (home / "modules" / "analysis-common" / f"analysis-common-{VERSION}.jar").read_text() == "jar\n"
    assert f"version={VERSION}" in (home / "modules" / "analysis-common" / "plugin-descriptor.properties").read_text()
    assert [path.name for path in home.parent.iterdir()] == [home.name]


def test_a_maven_that_fails_leaves_nothing_and_says_why(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_script(fake / "bin" / "mvn", "echo 'no route to the repository'; exit 1")
    monkeypatch.setenv("PATH", f"{fake / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FUTARI_OPENSEARCH_HOME", str(fake / "cache" / "opensearch"))
    with pytest.raises(NotInstalled, match="no route to the repository"):
        distribution.opensearch_home()
    assert list((fake / "cache").iterdir()) == []
    monkeypatch.setenv("PATH", str(fake / "nowhere"))
    with pytest.raises(NotInstalled, match="'mvn' is not on the PATH"):
        distribution.opensearch_home()


def test_a_folder_without_opensearch_is_refused(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (fake / "empty").mkdir()
    monkeypatch.setenv("FUTARI_OPENSEARCH_HOME", str(fake / "empty"))
    with pytest.raises(NotInstalled, match="holds no OpenSearch"):
        distribution.opensearch_home()
