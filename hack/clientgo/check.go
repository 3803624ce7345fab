package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	apps "k8s.io/api/apps/v1"
	authentication "k8s.io/api/authentication/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	applyapps "k8s.io/client-go/applyconfigurations/apps/v1"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	applymeta "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/retry"
)

// checker walks through what operators do with the library; every step says whether it worked.
type checker struct {
	options
	config *rest.Config
	client *kubernetes.Clientset
}

func check(ctx context.Context, config *rest.Config, o options) (any, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	c := checker{options: o, config: config, client: client}
	steps := []struct {
		name string
		run  func(context.Context) error
	}{
		{"create, get, update and conflict", c.updates},
		{"protobuf", c.protobuf},
		{"apply configurations", c.applies},
		{"shared informer", c.informs},
		{"discovery, mapper and dynamic client", c.dynamics},
		{"metadata client", c.metadata},
		{"pages", c.pages},
		{"scale and status", c.scales},
		{"leader election", c.elects},
		{"events", c.records},
		{"tokens", c.tokens},
		{"eviction", c.evicts},
		{"logs", c.logs},
		{"exec", c.execs},
		{"delete and its propagation", c.deletes},
	}
	report := map[string]string{}
	for _, step := range steps {
		limited, cancel := context.WithTimeout(ctx, 60*time.Second)
		report[step.name] = "ok"
		if err := step.run(limited); err != nil {
			report[step.name] = err.Error()
		}
		cancel()
	}
	return report, nil
}

func (c checker) updates(ctx context.Context) error {
	maps := c.client.CoreV1().ConfigMaps(c.namespace)
	first, err := maps.Create(ctx, object("check"), meta.CreateOptions{})
	if err != nil {
		return err
	}
	if _, err = maps.Create(ctx, object("check"), meta.CreateOptions{}); !errors.IsAlreadyExists(err) {
		return fmt.Errorf("a second create: %v", err)
	}
	if err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		current, err := maps.Get(ctx, "check", meta.GetOptions{})
		if err != nil {
			return err
		}
		current.Data["a"] = "1"
		_, err = maps.Update(ctx, current, meta.UpdateOptions{})
		return err
	}); err != nil {
		return err
	}
	if _, err = maps.Update(ctx, first, meta.UpdateOptions{}); !errors.IsConflict(err) {
		return fmt.Errorf("an update of an old version: %v", err)
	}
	if _, err = maps.Get(ctx, "missing", meta.GetOptions{}); !errors.IsNotFound(err) {
		return fmt.Errorf("a missing object: %v", err)
	}
	return nil
}

func (c checker) protobuf(ctx context.Context) error {
	config := rest.CopyConfig(c.config)
	config.ContentType = "application/vnd.kubernetes.protobuf" // as controller-runtime sets it for built-in kinds
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	made, err := client.CoreV1().Secrets(c.namespace).Create(ctx, &core.Secret{
		ObjectMeta: meta.ObjectMeta{Name: "proto"}, Data: map[string][]byte{"k": {0, 1, 255}}}, meta.CreateOptions{})
	if err != nil {
		return err
	}
	if !bytes.Equal(made.Data["k"], []byte{0, 1, 255}) {
		return fmt.Errorf("the secret holds %v", made.Data)
	}
	all, err := client.CoreV1().Secrets(c.namespace).List(ctx, meta.ListOptions{})
	if err != nil {
		return err
	}
	stream, err := client.CoreV1().Secrets(c.namespace).Watch(ctx, meta.ListOptions{ResourceVersion: all.ResourceVersion})
	if err != nil {
		return err
	}
	defer stream.Stop()
	if err := client.CoreV1().Secrets(c.namespace).Delete(ctx, "proto", meta.DeleteOptions{}); err != nil {
		return err
	}
	select {
	case event := <-stream.ResultChan():
		if found, ok := event.Object.(*core.Secret); !ok || found.Name != "proto" {
			return fmt.Errorf("watched %v", event)
		}
	case <-ctx.Done():
		return fmt.Errorf("the deletion was not seen")
	}
	return nil
}

func labelled() map[string]string { return map[string]string{"app": "check"} }

func (c checker) applies(ctx context.Context) error {
	container := applycore.Container().WithName("c").WithImage("redis:7")
	wanted := applyapps.Deployment("check", c.namespace).WithSpec(applyapps.DeploymentSpec().WithReplicas(0).
		WithSelector(applymeta.LabelSelector().WithMatchLabels(labelled())).
		WithTemplate(applycore.PodTemplateSpec().WithLabels(labelled()).
			WithSpec(applycore.PodSpec().WithContainers(container))))
	deployments := c.client.AppsV1().Deployments(c.namespace)
	if _, err := deployments.Apply(ctx, wanted, meta.ApplyOptions{FieldManager: "one"}); err != nil {
		return err
	}
	_, err := deployments.Apply(ctx, applyapps.Deployment("check", c.namespace).WithSpec(
		applyapps.DeploymentSpec().WithReplicas(1)), meta.ApplyOptions{FieldManager: "two"})
	if !errors.IsConflict(err) {
		return fmt.Errorf("another manager's field: %v", err)
	}
	live, err := deployments.Get(ctx, "check", meta.GetOptions{})
	if err != nil {
		return err
	}
	mine, err := applyapps.ExtractDeployment(live, "one")
	if err != nil {
		return err
	}
	if mine.Spec == nil || mine.Spec.Replicas == nil || len(mine.Spec.Template.Spec.Containers) != 1 {
		return fmt.Errorf("managed fields give back %v", mine)
	}
	return nil
}

func (c checker) informs(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(c.client, 0, informers.WithNamespace(c.namespace))
	informer := factory.Core().V1().ConfigMaps()
	changed := make(chan string, 100)
	_, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, now any) { changed <- now.(*core.ConfigMap).Data["seen"] },
	})
	if err != nil {
		return err
	}
	stop := make(chan struct{})
	defer close(stop)
	factory.Start(stop)
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("%v did not sync", kind)
		}
	}
	if _, err := informer.Lister().ConfigMaps(c.namespace).Get("check"); err != nil {
		return err
	}
	if _, err := c.client.CoreV1().ConfigMaps(c.namespace).Patch(ctx, "check", types.MergePatchType,
		[]byte(`{"data":{"seen":"yes"}}`), meta.PatchOptions{}); err != nil {
		return err
	}
	for {
		select {
		case value := <-changed:
			if value == "yes" {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("the change was not seen")
		}
	}
}

func (c checker) dynamics(ctx context.Context) error {
	found := discovery.NewDiscoveryClientForConfigOrDie(c.config)
	if _, _, err := found.ServerGroupsAndResources(); err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(found))
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: "apps", Kind: "StatefulSet"})
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(c.config)
	if err != nil {
		return err
	}
	set := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": map[string]any{"name": "check"},
		"spec": map[string]any{
			"replicas": int64(0), "serviceName": "check",
			"selector": map[string]any{"matchLabels": map[string]any{"app": "check"}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"app": "check"}},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "redis:7"}}},
			},
		},
	}}
	sets := client.Resource(mapping.Resource).Namespace(c.namespace)
	if _, err := sets.Create(ctx, set, meta.CreateOptions{}); err != nil {
		return err
	}
	live, err := sets.Get(ctx, "check", meta.GetOptions{})
	if err != nil {
		return err
	}
	if policy, _, _ := unstructured.NestedString(live.Object, "spec", "podManagementPolicy"); policy != "OrderedReady" {
		return fmt.Errorf("the default of podManagementPolicy is %q", policy)
	}
	return nil
}

func (c checker) metadata(ctx context.Context) error {
	client, err := metadata.NewForConfig(c.config)
	if err != nil {
		return err
	}
	maps := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(c.namespace)
	one, err := maps.Get(ctx, "check", meta.GetOptions{})
	if err != nil {
		return err
	}
	if one.Labels["app"] != "load" || len(one.ManagedFields) == 0 {
		return fmt.Errorf("answered %v", one)
	}
	return nil
}

func (c checker) pages(ctx context.Context) error {
	maps := c.client.CoreV1().ConfigMaps(c.namespace)
	for number := range 7 {
		if _, err := maps.Create(ctx, object(fmt.Sprintf("page-%d", number)), meta.CreateOptions{}); err != nil {
			return err
		}
	}
	count := 0
	each := pager.New(pager.SimplePageFunc(func(options meta.ListOptions) (_ runtime.Object, err error) {
		return maps.List(ctx, options)
	}))
	each.PageSize = 3
	if err := each.EachListItem(ctx, meta.ListOptions{}, func(runtime.Object) error { count++; return nil }); err != nil {
		return err
	}
	if count < 8 {
		return fmt.Errorf("the pages held %d objects", count)
	}
	return nil
}

func (c checker) scales(ctx context.Context) error {
	deployments := c.client.AppsV1().Deployments(c.namespace)
	scale, err := deployments.GetScale(ctx, "check", meta.GetOptions{})
	if err != nil {
		return err
	}
	scale.Spec.Replicas = 0
	if _, err := deployments.UpdateScale(ctx, "check", scale, meta.UpdateOptions{}); err != nil {
		return err
	}
	live, err := deployments.Get(ctx, "check", meta.GetOptions{})
	if err != nil {
		return err
	}
	live.Status.Conditions = append(live.Status.Conditions,
		apps.DeploymentCondition{Type: "Checked", Status: core.ConditionTrue})
	_, err = deployments.UpdateStatus(ctx, live, meta.UpdateOptions{})
	return err
}

func (c checker) elects(ctx context.Context) error {
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, c.namespace, "check",
		c.client.CoreV1(), c.client.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: "me"})
	if err != nil {
		return err
	}
	led := false
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	leaderelection.RunOrDie(limited, leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 6 * time.Second, RenewDeadline: 4 * time.Second, RetryPeriod: time.Second,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { led = true; cancel() },
			OnStoppedLeading: func() {},
		},
	})
	if !led {
		return fmt.Errorf("never led")
	}
	lease, err := c.client.CoordinationV1().Leases(c.namespace).Get(ctx, "check", meta.GetOptions{})
	if err != nil {
		return err
	}
	if holder := lease.Spec.HolderIdentity; holder != nil && *holder != "" {
		return fmt.Errorf("not released: %s", *holder)
	}
	return nil
}

func (c checker) records(ctx context.Context) error {
	broadcaster := record.NewBroadcaster()
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcore.EventSinkImpl{Interface: c.client.CoreV1().Events(c.namespace)})
	about, err := c.client.CoreV1().ConfigMaps(c.namespace).Get(ctx, "check", meta.GetOptions{})
	if err != nil {
		return err
	}
	recorder := broadcaster.NewRecorder(scheme.Scheme, core.EventSource{Component: "check"})
	for ctx.Err() == nil {
		recorder.Event(about, core.EventTypeNormal, "Checked", "once more")
		time.Sleep(200 * time.Millisecond)
		found, err := c.client.CoreV1().Events(c.namespace).List(ctx, meta.ListOptions{
			FieldSelector: "involvedObject.name=check,reason=Checked"})
		if err != nil {
			return err
		}
		if len(found.Items) == 1 && found.Items[0].Count > 1 { // patched, not made anew
			return nil
		}
	}
	return fmt.Errorf("the event was not counted up")
}

func (c checker) tokens(ctx context.Context) error {
	seconds := int64(600)
	made, err := c.client.CoreV1().ServiceAccounts(c.namespace).CreateToken(ctx, "default",
		&authentication.TokenRequest{Spec: authentication.TokenRequestSpec{ExpirationSeconds: &seconds}}, meta.CreateOptions{})
	if err != nil {
		return err
	}
	config := rest.AnonymousClientConfig(c.config)
	config.BearerToken = made.Status.Token
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	who, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authentication.SelfSubjectReview{}, meta.CreateOptions{})
	if err != nil {
		return err
	}
	if name := who.Status.UserInfo.Username; name != "system:serviceaccount:"+c.namespace+":default" {
		return fmt.Errorf("the token is %s's", name)
	}
	if _, err = client.CoreV1().Secrets(c.namespace).List(ctx, meta.ListOptions{}); !errors.IsForbidden(err) {
		return fmt.Errorf("secrets of an account without roles: %v", err)
	}
	return nil
}

func (c checker) evicts(ctx context.Context) error {
	// A pod that no node takes: what is asked is the disruption budget's answer.
	pods := c.client.CoreV1().Pods(c.namespace)
	_, err := pods.Create(ctx, &core.Pod{ObjectMeta: meta.ObjectMeta{Name: "evicted", Labels: labelled()},
		Spec: core.PodSpec{NodeSelector: map[string]string{"no": "node"},
			Containers: []core.Container{{Name: "c", Image: "redis:7"}}}}, meta.CreateOptions{})
	if err != nil {
		return err
	}
	if err = c.client.PolicyV1().Evictions(c.namespace).Evict(ctx, &policy.Eviction{
		ObjectMeta: meta.ObjectMeta{Name: "evicted", Namespace: c.namespace}}); err != nil {
		return err
	}
	if _, err = pods.Get(ctx, "evicted", meta.GetOptions{}); !errors.IsNotFound(err) {
		return fmt.Errorf("after its eviction: %v", err)
	}
	return nil
}

func (c checker) logs(ctx context.Context) error {
	if c.pod == "" {
		return nil
	}
	lines := int64(1)
	stream, err := c.client.CoreV1().Pods(c.namespace).GetLogs(c.pod, &core.PodLogOptions{TailLines: &lines}).Stream(ctx)
	if err != nil {
		return err
	}
	defer stream.Close()
	text, err := io.ReadAll(stream)
	if err != nil || len(text) == 0 {
		return fmt.Errorf("%d bytes: %v", len(text), err)
	}
	return nil
}

func (c checker) execs(ctx context.Context) error {
	if c.pod == "" {
		return nil
	}
	request := c.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(c.namespace).Name(c.pod).
		SubResource("exec").VersionedParams(&core.PodExecOptions{
		Command: []string{"sh", "-c", "cat; echo bad >&2; exit 3"}, Stdin: true, Stdout: true, Stderr: true,
	}, scheme.ParameterCodec)
	sockets, err := remotecommand.NewWebSocketExecutor(c.config, "GET", request.URL().String())
	if err != nil {
		return err
	}
	spdy, err := remotecommand.NewSPDYExecutor(c.config, "POST", request.URL())
	if err != nil {
		return err
	}
	for name, executor := range map[string]remotecommand.Executor{"websocket": sockets, "spdy": spdy} {
		var out, bad bytes.Buffer
		err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{
			Stdin: bytes.NewBufferString("hello"), Stdout: &out, Stderr: &bad})
		if err == nil || err.Error() != "command terminated with exit code 3" || out.String() != "hello" || bad.String() != "bad\n" {
			return fmt.Errorf("%s: %q %q: %v", name, out.String(), bad.String(), err)
		}
	}
	return nil
}

func (c checker) deletes(ctx context.Context) error {
	foreground := meta.DeletePropagationForeground
	if err := c.client.AppsV1().Deployments(c.namespace).Delete(ctx, "check",
		meta.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		return err
	}
	other := types.UID("other")
	err := c.client.CoreV1().ConfigMaps(c.namespace).Delete(ctx, "check",
		meta.DeleteOptions{Preconditions: &meta.Preconditions{UID: &other}})
	if !errors.IsConflict(err) {
		return fmt.Errorf("a delete of another UID: %v", err)
	}
	return c.client.CoreV1().ConfigMaps(c.namespace).DeleteCollection(ctx, meta.DeleteOptions{}, meta.ListOptions{LabelSelector: "app=load"})
}
