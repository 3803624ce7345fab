"""Connections that stay: exec, attach, port-forward and logs, and the node agent behind them."""
