"""The small exporter's figures."""

from __future__ import annotations

from mooring.local.node.exporter import metrics


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
