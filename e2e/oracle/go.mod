// What the three oracles share. It needs no other module, because each oracle is built against another Kubernetes.
module tidepool.io/e2e/oracle

go 1.26.0
