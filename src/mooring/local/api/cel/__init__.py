"""CEL as a Kubernetes API server speaks it: compiling, checking, pricing and evaluating rules."""
