// The controller-runtime peer of the benchmark: one Widget, n ConfigMaps, one status.
//
// The same logic as peer_mooring.py and peer_kopf.py beside it. Everything is at controller-runtime's
// defaults but the workers (16) and, with -read-your-writes, its experimental consistent client.
package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

const label = "bench.mooring.dev/widget"

// WidgetSpec says how many children there shall be, and what they hold.
type WidgetSpec struct {
	Children int    `json:"children"`
	Value    string `json:"value"`
	Notes    string `json:"notes,omitempty"`
}

// WidgetStatus repeats what the children hold.
type WidgetStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Children           int                `json:"children,omitempty"`
	Value              string             `json:"value,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// Widget is the benchmark's kind.
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              WidgetSpec   `json:"spec,omitempty"`
	Status            WidgetStatus `json:"status,omitempty"`
}

// DeepCopy copies the widget.
func (in *Widget) DeepCopy() *Widget {
	out := *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status.Conditions = append([]metav1.Condition(nil), in.Status.Conditions...)
	return &out
}

// DeepCopyObject copies the widget.
func (in *Widget) DeepCopyObject() runtime.Object { return in.DeepCopy() }

// WidgetList is a list of widgets.
type WidgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Widget `json:"items"`
}

// DeepCopyObject copies the list.
func (in *WidgetList) DeepCopyObject() runtime.Object {
	out := &WidgetList{TypeMeta: in.TypeMeta, Items: make([]Widget, len(in.Items))}
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range in.Items {
		out.Items[i] = *in.Items[i].DeepCopy()
	}
	return out
}

type reconciler struct{ client.Client }

// Reconcile makes the children as declared, then says so in the status if it does not yet.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	widget := &Widget{}
	if err := r.Get(ctx, request.NamespacedName, widget); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !widget.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	for number := range widget.Spec.Children {
		if err := r.child(ctx, widget, number); err != nil {
			return ctrl.Result{}, err
		}
	}
	before := widget.DeepCopy()
	widget.Status.ObservedGeneration = widget.Generation
	widget.Status.Children = widget.Spec.Children
	widget.Status.Value = widget.Spec.Value
	meta.SetStatusCondition(&widget.Status.Conditions, metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "InSync",
		Message: "everything is as declared", ObservedGeneration: widget.Generation,
	})
	patch := client.MergeFrom(before)
	if data, err := patch.Data(widget); err != nil || string(data) == "{}" {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.Status().Patch(ctx, widget, patch)
}

func (r *reconciler) child(ctx context.Context, widget *Widget, number int) error {
	name := fmt.Sprintf("%s-%d", widget.Name, number)
	wanted := map[string]string{"value": widget.Spec.Value, "number": strconv.Itoa(number)}
	found := &corev1.ConfigMap{}
	err := r.Get(ctx, client.ObjectKey{Namespace: widget.Namespace, Name: name}, found)
	if apierrors.IsNotFound(err) {
		made := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Namespace: widget.Namespace, Labels: map[string]string{label: widget.Name},
			},
			Data: wanted,
		}
		if err := ctrl.SetControllerReference(widget, made, r.Scheme()); err != nil {
			return err
		}
		return r.Create(ctx, made)
	}
	if err != nil || maps.Equal(found.Data, wanted) {
		return err
	}
	before := found.DeepCopy()
	found.Data = wanted
	return r.Patch(ctx, found, client.MergeFrom(before))
}

func run() error {
	namespace := flag.String("namespace", "", "the namespace to act in")
	probes := flag.String("probes", "0", "address of /healthz")
	metrics := flag.String("metrics", "0", "address of /metrics")
	elect := flag.Bool("elect", false, "hold a Lease")
	consistent := flag.Bool("read-your-writes", false, "switch the experimental consistent client on")
	flag.Parse()
	ctrl.SetLogger(zap.New())

	group := schema.GroupVersion{Group: "bench.mooring.dev", Version: "v1"}
	scheme.Scheme.AddKnownTypes(group, &Widget{}, &WidgetList{})
	metav1.AddToGroupVersion(scheme.Scheme, group)

	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Cache:                         cache.Options{DefaultNamespaces: map[string]cache.Config{*namespace: {}}},
		Client:                        client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: consistent}},
		Metrics:                       server.Options{BindAddress: *metrics},
		HealthProbeBindAddress:        *probes,
		LeaderElection:                *elect,
		LeaderElectionID:              "bench",
		LeaderElectionNamespace:       *namespace,
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return err
	}
	if err := manager.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(manager).
		For(&Widget{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&corev1.ConfigMap{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 16}).
		Complete(&reconciler{manager.GetClient()})
	if err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
