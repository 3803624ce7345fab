"""The small exporter's figures."""

from __future__ import annotations

from pathlib import Path

from mooring.local.node.exporter import client, metrics


def test_figures_of_info_become_metrics_under_the_known_names() -> None:
    info = {
        "redis_version": "7.0.15",
        "role": "slave",
        "used_memory": 1000,
        "connected_clients": 3,
        "master_link_status": "up",
        "db0": {"keys": 5, "expires": 1, "avg_ttl": 0},
        "os": "Linux",
    }
    text = "".join(metrics(info))
    for line in (
        "redis_up 1\n",
        'redis_instance_info{redis_version="7.0.15",role="slave"} 1\n',
        "redis_memory_used_bytes 1000\n",
        "redis_connected_clients 3\n",
        'redis_db_keys{db="db0"} 5\n',
        "redis_master_link_up 1\n",
    ):
        assert line in text
    assert "Linux" not in text


def test_a_password_file_has_passwords_by_address(tmp_path: Path) -> None:
    # As oliver006/redis_exporter has it, whose place it takes.
    file = tmp_path / "passwords.json"
    file.write_text('{"redis://localhost:6379": "s3cret", "redis://other:6379": "another"}')
    options = ["--redis.addr", "redis://localhost:6379", "--redis.password-file", str(file)]
    assert client(options).connection_pool.connection_kwargs["password"] == "s3cret"
