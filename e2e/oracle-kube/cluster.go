package main

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

// cluster is a case loaded into kube-scheduler's own structures.
type cluster struct {
	framework framework.Framework
	// plugins are the instances inside framework, by name, for questions that
	// the framework's combined calls do not answer.
	plugins  map[string]fwk.Plugin
	snapshot *internalcache.Snapshot
	// nodes are the snapshot's nodes in its order.
	nodes []fwk.NodeInfo
}

func (p profiles) newCluster(ctx context.Context, c *Case) (*cluster, error) {
	if c == nil || c.Pod == nil {
		return nil, fmt.Errorf(`a request needs a "case" with a "pod"`)
	}
	profile, err := p.get(c.Profile)
	if err != nil {
		return nil, err
	}
	snapshot, err := newSnapshot(ctx, c)
	if err != nil {
		return nil, err
	}
	nominated, err := newNominator(c.Nominated)
	if err != nil {
		return nil, err
	}
	factory, err := newInformers(c)
	if err != nil {
		return nil, err
	}
	draManager, err := newDRAManager(ctx, factory)
	if err != nil {
		return nil, err
	}

	cl := &cluster{plugins: map[string]fwk.Plugin{}, snapshot: snapshot}
	cl.framework, err = frameworkruntime.NewFramework(ctx, cl.recordingRegistry(), profile,
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSnapshotSharedLister(snapshot),
		frameworkruntime.WithPodNominator(nominated),
		frameworkruntime.WithSharedDRAManager(draManager),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()),
		frameworkruntime.WithPodsInPreBind(frameworkruntime.NewPodsInPreBindMap()),
		// One worker: cases are small, and nodes come out in a fixed order.
		frameworkruntime.WithParallelism(1),
	)
	if err != nil {
		return nil, fmt.Errorf("building the framework: %w", err)
	}
	cl.nodes, err = snapshot.NodeInfos().List()
	return cl, err
}

// recordingRegistry is the in-tree registry, remembering what it builds.
func (cl *cluster) recordingRegistry() frameworkruntime.Registry {
	registry := plugins.NewInTreeRegistry()
	for name, build := range registry {
		registry[name] = func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			plugin, err := build(ctx, args, handle)
			cl.plugins[name] = plugin
			return plugin, err
		}
	}
	return registry
}

// newSnapshot goes through the real cache, which orders nodes and sizes images.
func newSnapshot(ctx context.Context, c *Case) (*internalcache.Snapshot, error) {
	logger := klog.FromContext(ctx)
	schedulerCache := internalcache.New(ctx, nil, false)
	for _, node := range c.Nodes {
		schedulerCache.AddNode(logger, node)
	}
	for _, pod := range c.Pods {
		if pod.Spec.NodeName == "" {
			return nil, fmt.Errorf("pod %s/%s of \"pods\" has no spec.nodeName", pod.Namespace, pod.Name)
		}
		if err := schedulerCache.AddPod(logger, pod); err != nil {
			return nil, fmt.Errorf("adding pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	snapshot := internalcache.NewEmptySnapshot()
	if err := schedulerCache.UpdateSnapshot(logger, snapshot); err != nil {
		return nil, fmt.Errorf("taking the snapshot: %w", err)
	}
	return snapshot, nil
}

// newInformers fills the stores of informers that are never started.
func newInformers(c *Case) (informers.SharedInformerFactory, error) {
	factory := informers.NewSharedInformerFactory(nil, 0)
	core, apps, storage := factory.Core().V1(), factory.Apps().V1(), factory.Storage().V1()
	pods := append(append([]*v1.Pod{c.Pod}, c.Pods...), c.Nominated...)
	for _, fill := range []func() error{
		func() error { return store(core.Pods().Informer(), pods) },
		func() error { return store(core.Nodes().Informer(), c.Nodes) },
		func() error { return store(core.Namespaces().Informer(), c.Namespaces) },
		func() error { return store(core.Services().Informer(), c.Services) },
		func() error { return store(core.ReplicationControllers().Informer(), c.ReplicationControllers) },
		func() error { return store(apps.ReplicaSets().Informer(), c.ReplicaSets) },
		func() error { return store(apps.StatefulSets().Informer(), c.StatefulSets) },
		func() error { return store(core.PersistentVolumes().Informer(), c.PersistentVolumes) },
		func() error { return store(core.PersistentVolumeClaims().Informer(), c.PersistentVolumeClaims) },
		func() error { return store(storage.StorageClasses().Informer(), c.StorageClasses) },
		func() error { return store(storage.CSINodes().Informer(), c.CSINodes) },
		func() error { return store(storage.CSIDrivers().Informer(), c.CSIDrivers) },
		func() error { return store(storage.CSIStorageCapacities().Informer(), c.CSIStorageCapacities) },
		func() error { return store(storage.VolumeAttachments().Informer(), c.VolumeAttachments) },
		func() error {
			return store(factory.Policy().V1().PodDisruptionBudgets().Informer(), c.PodDisruptionBudgets)
		},
	} {
		if err := fill(); err != nil {
			return nil, err
		}
	}
	return factory, nil
}

func store[T any](informer cache.SharedIndexInformer, objects []T) error {
	for _, object := range objects {
		if err := informer.GetIndexer().Add(object); err != nil {
			return fmt.Errorf("storing a %T: %w", object, err)
		}
	}
	return nil
}

// newDRAManager knows no claims: cases have none, but DynamicResources and
// NodeResourcesFit call it for every pod.
func newDRAManager(ctx context.Context, factory informers.SharedInformerFactory) (fwk.SharedDRAManager, error) {
	claims := assumecache.NewAssumeCache(klog.FromContext(ctx), factory.Resource().V1().ResourceClaims().Informer(), "ResourceClaim", "", nil)
	slices, err := tracker.StartTracker(ctx, tracker.Options{SliceInformer: factory.Resource().V1().ResourceSlices()})
	if err != nil {
		return nil, fmt.Errorf("starting the resource slice tracker: %w", err)
	}
	return dynamicresources.NewDRAManager(ctx, claims, slices, factory), nil
}

// nominator holds the nominated pods of a case; nothing nominates during one.
type nominator map[string][]fwk.PodInfo

func newNominator(pods []*v1.Pod) (nominator, error) {
	n := nominator{}
	for _, pod := range pods {
		node := pod.Status.NominatedNodeName
		if node == "" {
			return nil, fmt.Errorf("pod %s/%s of \"nominated\" has no status.nominatedNodeName", pod.Namespace, pod.Name)
		}
		// As in the queue: affinity terms that do not parse count as absent.
		info, _ := framework.NewPodInfo(pod)
		n[node] = append(n[node], info)
	}
	return n, nil
}

func (n nominator) NominatedPodsForNode(node string) []fwk.PodInfo { return n[node] }

func (nominator) AddNominatedPod(klog.Logger, fwk.PodInfo, *fwk.NominatingInfo) {}
func (nominator) DeleteNominatedPodIfExists(*v1.Pod)                            {}
func (nominator) UpdateNominatedPod(klog.Logger, *v1.Pod, fwk.PodInfo)          {}
