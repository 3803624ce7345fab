// Prints what the OpenAPI schemas of Kubernetes do not say about its Go types and what its JSON form
// depends on: for every struct the Go type of each field, and whether an empty value is left out.
//
//	go run . > ../../src/mooring/local/api/openapi/fields.json
//
// A field is ["<Go type>", "<flags>"]; flags: p pointer, e omitempty, z omitzero.
package main

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

var unmarshaler = reflect.TypeOf((*json.Unmarshaler)(nil)).Elem()

type fields map[string][2]string

func name(t reflect.Type) string {
	parts := strings.Split(t.PkgPath(), "/")
	domain := strings.Split(parts[0], ".")
	for i, j := 0, len(domain)-1; i < j; i, j = i+1, j-1 {
		domain[i], domain[j] = domain[j], domain[i]
	}
	return strings.Join(append(append(domain, parts[1:]...), t.Name()), ".")
}

func collect(t reflect.Type, out fields, all map[string]fields) {
	for i := 0; i < t.NumField(); i++ {
		field := t.Field(i)
		tag := strings.Split(field.Tag.Get("json"), ",")
		if tag[0] == "-" {
			continue
		}
		ft, flags := field.Type, ""
		if field.Anonymous && tag[0] == "" {
			collect(ft, out, all)
			continue
		}
		if ft.Kind() == reflect.Ptr {
			ft, flags = ft.Elem(), "p"
		}
		for _, option := range tag[1:] {
			switch option {
			case "omitempty":
				flags += "e"
			case "omitzero":
				flags += "z"
			}
		}
		out[tag[0]] = [2]string{ft.String(), flags}
		visit(ft, all)
	}
}

func visit(t reflect.Type, all map[string]fields) {
	for t.Kind() == reflect.Ptr || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(unmarshaler) {
		return
	}
	key := name(t)
	if _, seen := all[key]; seen {
		return
	}
	all[key] = fields{}
	collect(t, all[key], all)
}

func main() {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensions.AddToScheme, apiregistration.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	all := map[string]fields{}
	for gvk, t := range s.AllKnownTypes() {
		if !strings.Contains(gvk.Version, "alpha") && !strings.Contains(gvk.Version, "beta") {
			visit(t, all)
		}
	}
	encoder := json.NewEncoder(os.Stdout)
	if err := encoder.Encode(all); err != nil {
		panic(err)
	}
}
