// Runs Kubernetes' own end-to-end tests of sig-scheduling on the cluster of --kubeconfig, and appends one JSON object per test to
// the file of --results.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"

	_ "k8s.io/kubernetes/test/e2e/framework/debug/init" // describes the namespace of a failed test
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"  // checks after each test that all nodes are ready
	_ "k8s.io/kubernetes/test/e2e/scheduling"
)

type result struct {
	Name    string  `json:"name"`
	State   string  `json:"state"`
	Seconds float64 `json:"seconds"`
	Message string  `json:"message"`
}

// There is no `go test`: RunSpecs returns the result.
type noRunner struct{}

func (noRunner) Fail() {}

// The namespace controller waits five seconds before it deletes the pods of a namespace, so those of the last test would take
// the resources that the next one counts on.
func deletePodsOfEarlierTests(ctx context.Context) {
	client, err := framework.LoadClientset()
	framework.ExpectNoError(err)
	namespaces, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	framework.ExpectNoError(err)
	for _, namespace := range namespaces.Items {
		if namespace.DeletionTimestamp != nil {
			pods := client.CoreV1().Pods(namespace.Name)
			err := pods.DeleteCollection(ctx, *metav1.NewDeleteOptions(0), metav1.ListOptions{})
			framework.ExpectNoError(err)
		}
	}
}

func main() {
	file := flag.String("results", "/dev/stdout", "Where to write the results.")
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	framework.AfterReadingAllFlags(&framework.TestContext)
	output, err := os.OpenFile(*file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	results := json.NewEncoder(output)
	ginkgo.ReportAfterEach(func(spec ginkgo.SpecReport) {
		err := results.Encode(result{spec.FullText(), spec.State.String(), spec.RunTime.Seconds(), spec.Failure.Message})
		framework.ExpectNoError(err)
	})
	ginkgo.BeforeEach(deletePodsOfEarlierTests)
	gomega.RegisterFailHandler(framework.Fail)
	suite, reporter := framework.CreateGinkgoConfig()
	if !ginkgo.RunSpecs(noRunner{}, "sig-scheduling", suite, reporter) {
		os.Exit(1)
	}
}
