// clientgo drives an API server with k8s.io/client-go.
//
//	clientgo check -kubeconfig F -namespace N [-pod P]   walks through what operators do; prints JSON
//	clientgo load  -kubeconfig F -namespace N ...        requests per second, watch fan-out, a large list; prints JSON
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

type options struct {
	namespace string
	pod       string
	workers   int
	watchers  int
	changes   int
	objects   int
	seconds   time.Duration
}

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("give check or load"))
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "the kubeconfig to use")
	o := options{}
	flags.StringVar(&o.namespace, "namespace", "default", "an existing namespace to work in")
	flags.StringVar(&o.pod, "pod", "", "check: a running pod with a shell, for logs and exec")
	flags.IntVar(&o.workers, "workers", 8, "load: requests in flight")
	flags.IntVar(&o.watchers, "watchers", 100, "load: watches for the fan-out")
	flags.IntVar(&o.changes, "changes", 200, "load: changes that all watches are to see, one after the other")
	flags.IntVar(&o.objects, "objects", 10000, "load: objects of the large list")
	flags.DurationVar(&o.seconds, "seconds", 5*time.Second, "load: time for each kind of request")
	_ = flags.Parse(os.Args[2:])

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		fail(err)
	}
	config.QPS = -1 // what is measured is the server
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	commands := map[string]func(context.Context, *rest.Config, options) (any, error){"check": check, "load": load}
	command, found := commands[os.Args[1]]
	if !found {
		fail(fmt.Errorf("%s: give check or load", os.Args[1]))
	}
	report, err := command(ctx, config, o)
	if err != nil {
		fail(err)
	}
	text, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		fail(err)
	}
	fmt.Println(string(text))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "clientgo:", err)
	os.Exit(1)
}
