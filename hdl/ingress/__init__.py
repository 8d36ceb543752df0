"""Room ``ingress``: MAC beats to parsed, checked packets; RoCE and net split."""
