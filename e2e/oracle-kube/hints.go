package main

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

// happening is something that might let a rejected pod pass.
type happening struct {
	event    fwk.ClusterEvent
	object   string
	old, new any
}

// hints lets objects of the case come, turn into their neighbours and go, and
// asks each plugin that can reject a pod which of it may help. The caches stay
// as they are: hints look at the event.
func (cl *cluster) hints(ctx context.Context, c *Case) ([]Hint, error) {
	logger := klog.FromContext(ctx)
	happenings := happenings(c)
	hints := make([]Hint, len(happenings))
	for i, h := range happenings {
		hints[i] = Hint{Event: h.event.Label() + " " + h.object, Helps: map[string]bool{}}
	}
	for _, name := range cl.rejecting() {
		plugin, ok := cl.plugins[name].(fwk.EnqueueExtensions)
		if !ok {
			return nil, fmt.Errorf("plugin %s names no events", name)
		}
		registered, err := plugin.EventsToRegister(ctx)
		if err != nil {
			return nil, fmt.Errorf("events of %s: %w", name, err)
		}
		for i, h := range happenings {
			for _, r := range registered {
				if framework.MatchClusterEvents(r.Event, h.event) && helps(logger, r, c.Pod, h) {
					hints[i].Helps[name] = true
					break
				}
			}
		}
	}
	return hints, nil
}

func helps(logger klog.Logger, r fwk.ClusterEventWithHint, pod *v1.Pod, h happening) bool {
	if r.QueueingHintFn == nil {
		return true
	}
	hint, err := r.QueueingHintFn(logger, pod, h.old, h.new)
	return err != nil || hint == fwk.Queue
}

// rejecting are the plugins whose rejections the queue remembers, by name.
func (cl *cluster) rejecting() []string {
	enabled := cl.framework.ListPlugins()
	rejecting := sets.New[string]()
	for _, set := range []config.PluginSet{enabled.PreEnqueue, enabled.PreFilter, enabled.Filter, enabled.Reserve, enabled.Permit} {
		for _, plugin := range set.Enabled {
			rejecting.Insert(plugin.Name)
		}
	}
	// It rejects pods with claims only, and cases have none.
	return sets.List(rejecting.Delete(names.DynamicResources))
}

func happenings(c *Case) []happening {
	var all []happening
	all = append(all, comeAndGo(fwk.Node, c.Nodes, framework.NodeSchedulingPropertiesChange)...)
	all = append(all, comeAndGo(assignedPod, c.Pods, onItsNode)...)
	all = append(all, comeAndGo(fwk.PersistentVolume, c.PersistentVolumes, nil)...)
	all = append(all, comeAndGo(fwk.PersistentVolumeClaim, c.PersistentVolumeClaims, nil)...)
	all = append(all, comeAndGo(fwk.StorageClass, c.StorageClasses, nil)...)
	all = append(all, comeAndGo(fwk.CSINode, c.CSINodes, nil)...)
	all = append(all, comeAndGo(fwk.CSIDriver, c.CSIDrivers, nil)...)
	all = append(all, comeAndGo(fwk.CSIStorageCapacity, c.CSIStorageCapacities, nil)...)
	all = append(all, comeAndGo(fwk.VolumeAttachment, c.VolumeAttachments, nil)...)
	for _, other := range c.Pods {
		changed := inPlaceOf(c.Pod, other)
		changed.Spec.NodeName = ""
		for _, event := range framework.PodSchedulingPropertiesChange(changed, c.Pod) {
			all = append(all, happening{event: event, object: c.Pod.Name, old: c.Pod, new: changed})
		}
	}
	return all
}

// assignedPod is what kube-scheduler calls pods that have a node; it has no name for it outside.
const assignedPod fwk.EventResource = "AssignedPod"

type object interface {
	metav1.Object
	runtime.Object
}

// comeAndGo has every object come, turn into the next of its kind, and go. Changes tells
// the events of a change; without it there is one, a plain update.
func comeAndGo[T object](resource fwk.EventResource, objects []T, changes func(new, old T) []fwk.ClusterEvent) []happening {
	if changes == nil {
		changes = func(T, T) []fwk.ClusterEvent {
			return []fwk.ClusterEvent{{Resource: resource, ActionType: fwk.Update}}
		}
	}
	var all []happening
	for i, o := range objects {
		name := o.GetName()
		all = append(all, happening{event: fwk.ClusterEvent{Resource: resource, ActionType: fwk.Add}, object: name, new: o})
		changed := inPlaceOf(o, objects[(i+1)%len(objects)])
		for _, event := range changes(changed, o) {
			all = append(all, happening{event: event, object: name, old: o, new: changed})
		}
		all = append(all, happening{event: fwk.ClusterEvent{Resource: resource, ActionType: fwk.Delete}, object: name, old: o})
	}
	return all
}

// inPlaceOf is another object under the name of one.
func inPlaceOf[T object](one, other T) T {
	changed := other.DeepCopyObject().(T)
	changed.SetName(one.GetName())
	changed.SetNamespace(one.GetNamespace())
	changed.SetUID(one.GetUID())
	return changed
}

// onItsNode are the events of a change that leaves the pod where it is.
func onItsNode(changed, old *v1.Pod) []fwk.ClusterEvent {
	changed.Spec.NodeName = old.Spec.NodeName
	return framework.PodSchedulingPropertiesChange(changed, old)
}
