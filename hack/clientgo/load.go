package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// rate is what one kind of request came to. Times are milliseconds.
type rate struct {
	PerSecond float64 `json:"per_second"`
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
}

// names are the objects of each worker that later requests work on; so many are created at least.
const names = 50

// payload makes an object about as large as a real ConfigMap: 1 kB.
var payload = strings.Repeat("maxmemory-policy allkeys-lru\n", 35)

func object(name string) *core.ConfigMap {
	return &core.ConfigMap{
		ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{"app": "load"}},
		Data:       map[string]string{"redis.conf": payload},
	}
}

func load(ctx context.Context, config *rest.Config, o options) (any, error) {
	clients, err := connections(config, o.workers)
	if err != nil {
		return nil, err
	}
	report := map[string]any{}
	for _, one := range requests(o) {
		found, err := hammer(ctx, clients, o, one.send)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.name, err)
		}
		report[one.name] = found
	}
	if err := fill(ctx, clients, o); err != nil {
		return nil, err
	}
	if report["list"], err = lists(ctx, clients[0], o); err != nil {
		return nil, err
	}
	if report["fan_out"], err = fanOut(ctx, config, o); err != nil {
		return nil, err
	}
	return report, nil
}

// connections are clients with a connection each, as so many programs have.
func connections(config *rest.Config, count int) ([]*kubernetes.Clientset, error) {
	clients := make([]*kubernetes.Clientset, count)
	for i := range clients {
		own := rest.CopyConfig(config)
		// A dialer of its own keeps the transport from being shared.
		own.Dial = dialer().DialContext
		client, err := kubernetes.NewForConfig(own)
		if err != nil {
			return nil, err
		}
		clients[i] = client
	}
	return clients, nil
}

type request struct {
	name string
	send func(ctx context.Context, client *kubernetes.Clientset, worker, number int) error
}

// requests are sent in this order: what the first creates the others use.
func requests(o options) []request {
	return []request{
		{"create", func(ctx context.Context, client *kubernetes.Clientset, worker, number int) error {
			_, err := client.CoreV1().ConfigMaps(o.namespace).Create(ctx, object(name(worker, number)), meta.CreateOptions{})
			return err
		}},
		{"get", func(ctx context.Context, client *kubernetes.Clientset, worker, number int) error {
			_, err := client.CoreV1().ConfigMaps(o.namespace).Get(ctx, name(worker, number%names), meta.GetOptions{})
			return err
		}},
		{"update", func(ctx context.Context, client *kubernetes.Clientset, worker, number int) error {
			changed := object(name(worker, number%names))
			changed.Data["number"] = fmt.Sprint(number)
			_, err := client.CoreV1().ConfigMaps(o.namespace).Update(ctx, changed, meta.UpdateOptions{})
			return err
		}},
		{"patch", func(ctx context.Context, client *kubernetes.Clientset, worker, number int) error {
			body := fmt.Appendf(nil, `{"data":{"patched":"%d"}}`, number)
			_, err := client.CoreV1().ConfigMaps(o.namespace).Patch(
				ctx, name(worker, number%names), types.StrategicMergePatchType, body, meta.PatchOptions{})
			return err
		}},
		{"apply", func(ctx context.Context, client *kubernetes.Clientset, worker, number int) error {
			body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s"},"data":{"applied":"%d"}}`,
				name(worker, number%names), number)
			_, err := client.CoreV1().ConfigMaps(o.namespace).Patch(
				ctx, name(worker, number%names), types.ApplyPatchType, body, meta.PatchOptions{FieldManager: "load"})
			return err
		}},
	}
}

func name(worker, number int) string { return fmt.Sprintf("w%d-%d", worker, number) }

// hammer sends one kind of request from all workers at once for a while.
func hammer(ctx context.Context, clients []*kubernetes.Clientset, o options,
	send func(context.Context, *kubernetes.Clientset, int, int) error,
) (rate, error) {
	var group sync.WaitGroup
	took := make([][]time.Duration, len(clients))
	errs := make([]error, len(clients))
	began := time.Now()
	for worker, client := range clients {
		group.Add(1)
		go func() {
			defer group.Done()
			for number := 0; time.Since(began) < o.seconds || number < names; number++ {
				sent := time.Now()
				if errs[worker] = send(ctx, client, worker, number); errs[worker] != nil {
					return
				}
				took[worker] = append(took[worker], time.Since(sent))
			}
		}()
	}
	group.Wait()
	elapsed := time.Since(began)
	for _, err := range errs {
		if err != nil {
			return rate{}, err
		}
	}
	all := slices.Concat(took...)
	return summary(all, elapsed), nil
}

func summary(all []time.Duration, elapsed time.Duration) rate {
	slices.Sort(all)
	at := func(share float64) float64 {
		return float64(all[int(share*float64(len(all)-1))].Microseconds()) / 1000
	}
	return rate{PerSecond: float64(len(all)) / elapsed.Seconds(), P50: at(0.5), P99: at(0.99)}
}

// fill brings the namespace to so many objects.
func fill(ctx context.Context, clients []*kubernetes.Clientset, o options) error {
	present, err := clients[0].CoreV1().ConfigMaps(o.namespace).List(ctx, meta.ListOptions{LabelSelector: "app=load"})
	if err != nil {
		return err
	}
	missing := int64(o.objects - len(present.Items))
	var group sync.WaitGroup
	errs := make([]error, len(clients))
	for worker, client := range clients {
		group.Add(1)
		go func() {
			defer group.Done()
			for {
				left := atomic.AddInt64(&missing, -1)
				if left < 0 || errs[worker] != nil {
					return
				}
				_, errs[worker] = client.CoreV1().ConfigMaps(o.namespace).Create(
					ctx, object(fmt.Sprintf("f-%d", left)), meta.CreateOptions{})
			}
		}()
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

type listed struct {
	Objects      int     `json:"objects"`
	Milliseconds float64 `json:"ms"`
	Undecoded    float64 `json:"as_json_undecoded_ms"`
	Paged        float64 `json:"in_pages_of_500_ms"`
	None         float64 `json:"selector_of_none_ms"`
}

// lists takes the median of five lists: whole and decoded (as protobuf, where the server has it), as JSON that
// nobody decodes, in pages as kubectl does, and with a selector that matches nothing.
func lists(ctx context.Context, client *kubernetes.Clientset, o options) (listed, error) {
	found := listed{}
	maps := client.CoreV1().ConfigMaps(o.namespace)
	whole := func() error {
		all, err := maps.List(ctx, meta.ListOptions{})
		if err == nil {
			found.Objects = len(all.Items)
		}
		return err
	}
	undecoded := func() error {
		_, err := client.CoreV1().RESTClient().Get().Namespace(o.namespace).Resource("configmaps").
			SetHeader("Accept", "application/json").DoRaw(ctx)
		return err
	}
	paged := func() error {
		next := ""
		for {
			page, err := maps.List(ctx, meta.ListOptions{Limit: 500, Continue: next})
			if err != nil || page.Continue == "" {
				return err
			}
			next = page.Continue
		}
	}
	none := func() error {
		_, err := maps.List(ctx, meta.ListOptions{LabelSelector: "app=nothing"})
		return err
	}
	var err error
	for _, one := range []struct {
		into *float64
		what func() error
	}{{&found.Milliseconds, whole}, {&found.Undecoded, undecoded}, {&found.Paged, paged}, {&found.None, none}} {
		if *one.into, err = median(one.what); err != nil {
			return found, err
		}
	}
	return found, nil
}

func median(what func() error) (float64, error) {
	var took []float64
	for range 5 {
		began := time.Now()
		if err := what(); err != nil {
			return 0, err
		}
		took = append(took, float64(time.Since(began).Microseconds())/1000)
	}
	slices.Sort(took)
	return took[2], nil
}

type fanned struct {
	Watchers  int     `json:"watchers"`
	Changes   int     `json:"changes"`
	PerSecond float64 `json:"events_per_second"`
	Last      float64 `json:"until_the_last_watcher_ms"`
}

// fanOut changes one object again and again while many watch: events delivered in all, and how long after the
// change was answered the last watcher had it (median; one change at a time).
func fanOut(ctx context.Context, config *rest.Config, o options) (fanned, error) {
	clients, err := connections(config, min(o.watchers, 20)+1)
	if err != nil {
		return fanned{}, err
	}
	editor, clients := clients[0], clients[1:]
	maps := func(client *kubernetes.Clientset) watching { return client.CoreV1().ConfigMaps(o.namespace) }
	if _, err := editor.CoreV1().ConfigMaps(o.namespace).Create(ctx, object("watched"), meta.CreateOptions{}); err != nil {
		return fanned{}, err
	}
	seen, stop, err := watch(ctx, clients, maps, o)
	if err != nil {
		return fanned{}, err
	}
	defer stop()
	found := fanned{Watchers: o.watchers, Changes: o.changes}
	var late []time.Duration
	began := time.Now()
	for number := range found.Changes {
		body := fmt.Appendf(nil, `{"data":{"n":"%d"}}`, number)
		sent := time.Now()
		if _, err := editor.CoreV1().ConfigMaps(o.namespace).Patch(ctx, "watched", types.MergePatchType, body,
			meta.PatchOptions{}); err != nil {
			return found, err
		}
		for range o.watchers {
			select {
			case <-seen:
			case <-time.After(30 * time.Second):
				return found, fmt.Errorf("a watcher has not seen change %d after 30 s", number)
			}
		}
		late = append(late, time.Since(sent))
	}
	found.PerSecond = float64(o.watchers*found.Changes) / time.Since(began).Seconds()
	found.Last = summary(late, time.Since(began)).P50
	return found, nil
}
