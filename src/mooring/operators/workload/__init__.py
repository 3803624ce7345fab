"""What every operator of a stateful workload needs: StatefulSets under OnDelete, their pods, claims and templates.

Pure where it can be. An operator brings its database's rules; the rest is here once: `index` finds a cluster's
objects, `pods` reads what Kubernetes says of them, `trouble` tells what needs a person, `claims` who keeps the data,
`statefulset` and `rollout` how pods get a new template, `adoption` how another operator's objects are taken over,
`configuration` which keys change live, `credentials` which passwords are in force, `scope` whose object it is,
`removal` how a release takes its clusters along, and `autoscale` how many replicas a load calls for. `actor` is what the
actors share. `moves` and `effects` are the writes to Kubernetes that planners choose; `surroundings`, `saved`, `waits` and `upgrade` serve the commands that explain a decision, `admission` the webhooks.
"""

__all__: list[str] = []
