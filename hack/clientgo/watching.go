package main

import (
	"context"
	"net"
	"time"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	machinery "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// watching is what a resource's client offers for it.
type watching interface {
	Watch(ctx context.Context, options meta.ListOptions) (machinery.Interface, error)
}

// watch opens so many watches of the object "watched"; every event of it is told on the channel.
func watch(ctx context.Context, clients []*kubernetes.Clientset,
	of func(*kubernetes.Clientset) watching, o options,
) (<-chan struct{}, func(), error) {
	seen := make(chan struct{}, o.watchers)
	var open []machinery.Interface
	stop := func() {
		for _, one := range open {
			one.Stop()
		}
	}
	for number := range o.watchers {
		stream, err := of(clients[number%len(clients)]).Watch(ctx,
			meta.ListOptions{FieldSelector: "metadata.name=watched"})
		if err != nil {
			stop()
			return nil, nil, err
		}
		open = append(open, stream)
		<-stream.ResultChan() // the object as it is
		go func() {
			for event := range stream.ResultChan() {
				if event.Type == machinery.Modified {
					seen <- struct{}{}
				}
			}
		}()
	}
	return seen, stop, nil
}

func dialer() *net.Dialer { return &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second} }
