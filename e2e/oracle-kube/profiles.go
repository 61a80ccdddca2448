package main

import (
	"encoding/json"
	"fmt"

	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	configv1 "k8s.io/kubernetes/pkg/scheduler/apis/config/v1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
)

// profiles keeps decoded profiles by their text: a run uses a handful of them.
type profiles map[string]*config.KubeSchedulerProfile

// get reads a profile as kube-scheduler reads its configuration file: strictly,
// with defaults, and validated.
func (p profiles) get(text json.RawMessage) (*config.KubeSchedulerProfile, error) {
	if profile, known := p[string(text)]; known {
		return profile, nil
	}
	file := map[string]any{
		"apiVersion": configv1.SchemeGroupVersion.String(),
		"kind":       "KubeSchedulerConfiguration",
	}
	if len(text) > 0 {
		file["profiles"] = []json.RawMessage{text}
	}
	data, err := json.Marshal(file)
	if err != nil {
		return nil, fmt.Errorf("wrapping the profile: %w", err)
	}
	object, _, err := scheme.Codecs.UniversalDecoder().Decode(data, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("decoding the profile: %w", err)
	}
	configuration, ok := object.(*config.KubeSchedulerConfiguration)
	if !ok {
		return nil, fmt.Errorf("decoding the profile: got a %T", object)
	}
	configuration.APIVersion = configv1.SchemeGroupVersion.String()
	configuration.LeaderElection.LeaderElect = false
	if err := validation.ValidateKubeSchedulerConfiguration(configuration); err != nil {
		return nil, fmt.Errorf("invalid profile: %w", err)
	}
	profile := &configuration.Profiles[0]
	p[string(text)] = profile
	return profile, nil
}
