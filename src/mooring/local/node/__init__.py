"""The node agent of the embedded control plane: pods as real processes on this machine.

There is no container engine. A pod is a network namespace with an address, a container is a program inside
bubblewrap's mount and pid namespaces: of an image that was loaded, or of the host's packages, where an image
catalog says which program stands for which image. The same code runs as root and, started again in a plain user's own namespaces, without.

How it is divided, from the kernel up:

- `netlink`, `nft`, `namespaces`, `spawner`: thin ways to ask the kernel, without a process per call
- `sandbox`, `network`, `services`, `dns`, `cgroups`, `volumes`, `images`, `logs`, `exec`, `stdio`, `usage`: one
  resource each
- `imagestore`, `rootfs`: images that were loaded, and containers' roots from them; `loading` (`archives`,
  `layers`, `trees`) is what `mooring image load` does
- `container`, `pod`: life cycles and the status they show (`status`, pure); `probes`, `checks`, `backoff`
- `agent`: nodes, Leases, watches; `gateway`: what the API server asks; `cleanup`, `rootless`

Guarantees: a killed plane's pods end within a second, whatever their programs do. The end of a program is
reported at once (pidfd, one patch). Nothing is left on the machine after `stop`, and `start` removes what a
killed plane left. Two pods never use one claimed volume at a time.
Non-guarantees: the version asked for by a tag (what runs is said), isolation against hostile programs.

Import from the modules; this one imports none of them, since the exporter and `rootless` start alone.
"""

__all__: list[str] = []
