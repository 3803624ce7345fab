// The first process of every pod on the real cluster's node. Only tests use it.
module mooring.dev/hack/kubernetes/pause

go 1.26.0
